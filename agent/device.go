package agent

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/agent/queue"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// device is a backend, the queues in front of it, and what it last said of its
// state.
type device struct {
	backend keys.Backend
	queues  *queues
	counts  *counters
	changed func(keys.Status)

	mu      sync.Mutex
	status  keys.Status
	asked   time.Time     // when the question was put that status answers
	didWork time.Time     // when the device last did what it was asked
	looking chan struct{} // closed when the look in progress is over; nil when there is none
}

func newDevice(b keys.Backend, l queue.Limits, counts *counters, changed func(keys.Status)) *device {
	return &device{backend: b, queues: newQueues(l), counts: counts, changed: changed}
}

// do runs work on the device in the caller's turn. What may mean that the device
// changed its state makes the agent look.
func (d *device) do(ctx context.Context, c queue.Caller, work func(context.Context) error) error {
	return d.doAt(ctx, "", c, work)
}

// doAt is do for one unit of the device.
func (d *device) doAt(ctx context.Context, unit string, c queue.Caller, work func(context.Context) error) error {
	err := d.timed(ctx, unit, c, work)
	switch fault.KindOf(err) {
	case "":
		d.worked()
	case fault.DeviceAbsent, fault.DeviceLocked, fault.DeviceWedged, fault.DeviceFailed, fault.IdentityChanged, fault.Busy:
		d.look(ctx, 0)
	}
	return err
}

// timed waits for the caller's turn and runs work, and observes how long each
// took: a slow device and a long queue want different remedies. Who left before
// its turn has waited too; who was refused a place has not.
func (d *device) timed(ctx context.Context, unit string, c queue.Caller, work func(context.Context) error) error {
	var turned atomic.Bool // the wait is over and observed
	came := time.Now()
	err := d.queues.do(ctx, unit, c, func(ctx context.Context) error {
		began := time.Now()
		if !turned.Swap(true) {
			d.counts.queue.Observe(began.Sub(came).Seconds(), d.backend.Name())
		}
		defer func() { d.counts.device.Observe(time.Since(began).Seconds(), d.backend.Name()) }()
		return work(ctx)
	})
	if fault.KindOf(err) == fault.Deadline && !turned.Swap(true) {
		d.counts.queue.Observe(time.Since(came).Seconds(), d.backend.Name())
	}
	return err
}

// worked notes that the device did what it was asked just now: what it said of a
// fault before is out of date.
func (d *device) worked() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.didWork = time.Now()
}

// ask runs work in the caller's turn and returns its result. A caller who gives up
// first gets no result, whatever becomes of the work.
func ask[T any](ctx context.Context, at worker, c queue.Caller, work func(context.Context) (T, error)) (T, error) {
	result := make(chan T, 1)
	err := at.do(ctx, c, func(ctx context.Context) error {
		v, err := work(ctx)
		result <- v
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return <-result, nil
}

// lookTime is how long it may take until the device has said how it is, the wait
// for work in progress included. It is longer than callers usually wait: where
// every piece of work ends with its caller's patience, a shorter one could always
// end before the device had been asked, and a wedged device keep its name.
const lookTime = 5 * time.Second

// How old an answer may be for those who only want to know: asking costs device
// commands, which the queue does not share out. A device that is not ready has
// time for questions, and people wait for its return.
const (
	statusAge = time.Second
	faultAge  = 100 * time.Millisecond
)

// glance returns the device's state, at most statusAge old unless the device takes
// longer than patience to say more.
func (d *device) glance(ctx context.Context, patience time.Duration) keys.Status {
	for range 2 { // the first look may join one that began too early
		if d.fresh() {
			break
		}
		d.look(ctx, patience)
	}
	return d.last()
}

func (d *device) fresh() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.status.State == keys.StateReady {
		return time.Since(d.asked) < statusAge
	}
	return time.Since(d.asked) < faultAge && d.asked.After(d.didWork)
}

// look asks the device for its state and waits for at most patience for the
// answer. However many ask, the device is asked once at a time.
func (d *device) look(ctx context.Context, patience time.Duration) keys.Status {
	d.mu.Lock()
	if d.looking == nil {
		d.looking = make(chan struct{})
		go d.ask(d.looking)
	}
	over := d.looking
	d.mu.Unlock()
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-over:
	case <-wait.C:
	case <-ctx.Done():
	}
	return d.last()
}

// ask brings the state up to date, and tells whoever watches when it is another
// one than before.
func (d *device) ask(over chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	asked := time.Now()
	now := d.backend.Status(ctx)
	d.mu.Lock()
	before := d.status.State
	d.status, d.asked, d.looking = now, asked, nil
	d.mu.Unlock()
	close(over)
	if before != "" && before != now.State {
		d.changed(now)
	}
}

func (d *device) last() keys.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// WatchDevices looks at each device that was seen not to be ready, every interval
// until ctx ends, so that a recovery is noticed although nobody signs. A device
// that nobody has asked for anything is left alone: the first signature after a
// start should not wait for questions.
func (a *Agent) WatchDevices(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		for _, d := range a.devices {
			if s := d.last().State; s != "" && s != keys.StateReady {
				d.look(ctx, interval)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (a *Agent) deviceChanged(s keys.Status) {
	a.counts.changes.Add(1, s.Backend, string(s.State))
	a.Log.Info("device", "backend", s.Backend, "state", s.State, "reason", s.Reason)
	a.watch.publish(event{what: "device", name: s.Backend, state: string(s.State)})
}

// outdated makes who asks for the state next ask the device.
func (d *device) outdated() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = time.Time{}
}

// device returns the named backend's device, or the default one for no name.
func (a *Agent) device(backend string) (*device, error) {
	if backend == "" && len(a.Backends) > 0 {
		backend = a.Backends[0].Name()
	}
	if d, ok := a.devices[backend]; ok {
		return d, nil
	}
	if backend == "" {
		return nil, &fault.Error{Kind: fault.DeviceAbsent, Message: "the agent runs without a device", Hint: "start it with --device; `holdfast doctor` says which ones there are"}
	}
	return nil, &fault.Error{Kind: fault.Unsupported, Message: "this agent has no backend " + backend, Hint: "`holdfast status` lists the devices"}
}
