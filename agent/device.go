package agent

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/agent/grants"
	"holdfast/agent/queue"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// device is a backend, its lanes, and the last status that it gave.
type device struct {
	backend keys.Backend
	lanes   *queue.Lanes
	counts  *counters
	changed func(keys.Status)

	mu      sync.Mutex
	status  keys.Status
	asked   time.Time     // when the device was asked for status
	didWork time.Time     // when the device last did what it was asked
	looking chan struct{} // closed when the status request in progress is over; nil when there is none
}

func newDevice(b keys.Backend, l queue.Limits, counts *counters, changed func(keys.Status)) *device {
	return &device{backend: b, lanes: queue.NewLanes(l), counts: counts, changed: changed}
}

// unitID names one of a backend's devices. The unit is empty where the backend has
// only one, and for work that concerns none in particular.
type unitID = grants.Unit

// unitOf returns the unit that holds m.
func (d *device) unitOf(m keys.Material) unitID {
	id := unitID{Backend: d.backend.Name()}
	if divided, ok := d.backend.(keys.Divided); ok {
		id.Unit = divided.Unit(m)
	}
	return id
}

// lane is a device, and the unit in whose lane work for it waits.
type lane struct {
	*device
	unit string
}

// whole is the lane for work that concerns no unit in particular.
func (d *device) whole() lane { return lane{device: d} }

// of returns the lane of the unit that holds m.
func (d *device) of(m keys.Material) lane { return lane{d, d.unitOf(m).Unit} }

// ofCard returns the lane of a card; 0 is no card in particular.
func (d *device) ofCard(serial uint32) lane {
	if serial == 0 {
		return d.whole()
	}
	return d.of(keys.Material{Backend: d.backend.Name(), Card: &keys.Place{Serial: serial}})
}

// do runs work on the device in the caller's turn. It observes how long the caller
// waited and how long the work took, because a long queue and a slow device need
// different remedies. A caller that left before its turn has waited too; a caller
// that the queue rejected has not. When the error may mean that the device changed
// its state, do starts a look at the device.
func (l lane) do(ctx context.Context, c queue.Caller, work func(context.Context) error) error {
	var waited atomic.Bool // the wait is over and observed
	name, came := l.backend.Name(), time.Now()
	err := l.lanes.Do(ctx, l.unit, c, func(ctx context.Context) error {
		began := time.Now()
		if !waited.Swap(true) {
			l.counts.queue.Observe(began.Sub(came).Seconds(), name)
		}
		defer func() { l.counts.device.Observe(time.Since(began).Seconds(), name) }()
		return work(ctx)
	})
	switch fault.KindOf(err) {
	case "":
		l.worked()
	case fault.Deadline:
		if !waited.Swap(true) {
			l.counts.queue.Observe(time.Since(came).Seconds(), name)
		}
	case fault.DeviceAbsent, fault.DeviceLocked, fault.DeviceWedged, fault.DeviceFailed, fault.IdentityChanged, fault.Busy:
		l.look(ctx, 0)
	}
	return err
}

// ask is [lane.do] for work that has a result. A caller that leaves first gets no
// result, whatever becomes of the work.
func ask[T any](ctx context.Context, at lane, c queue.Caller, work func(context.Context) (T, error)) (T, error) {
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

// worked notes that the device did what it was asked: the fault that it reported
// before is out of date.
func (d *device) worked() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.didWork = time.Now()
}

// lookTime is how long a look at the device may take, the wait for work in progress
// included. It is longer than the usual timeout of a caller: when a wedged device
// holds each piece of work until its caller's timeout, a shorter look could always
// end before the device was asked, and the device would never be seen to be wedged.
const lookTime = 5 * time.Second

// How old the status in a reply may be. Each status request costs device commands that
// do not wait in the queue. A device that is not ready is asked more often: it is idle,
// and users wait for its return.
const (
	statusAge = time.Second
	faultAge  = 100 * time.Millisecond
)

// cachedStatus returns the device's status, at most statusAge old unless the device takes
// longer than timeout to answer.
func (d *device) cachedStatus(ctx context.Context, timeout time.Duration) keys.Status {
	for range 2 { // the first look may join one that began too early
		if d.fresh() {
			break
		}
		d.look(ctx, timeout)
	}
	return d.last()
}

// shownStatus is cachedStatus for people: also a device that has not answered yet has a
// name and a state.
func (d *device) shownStatus(ctx context.Context, timeout time.Duration) keys.Status {
	if s := d.cachedStatus(ctx, timeout); s.State != "" {
		return s
	}
	ctx, cancel := context.WithDeadline(ctx, time.Now())
	defer cancel()
	s := d.backend.Status(ctx) // no time is left: it returns what it knows, and asks nothing
	if s.State == keys.StateReady {
		s.State, s.Reason = keys.StateUnopened, "it has given no answer since the agent started"
		s.Hint = "ask again in a few seconds; if it stays so, look at the agent's log"
	}
	return s
}

func (d *device) fresh() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.status.State == keys.StateReady {
		return time.Since(d.asked) < statusAge
	}
	return time.Since(d.asked) < faultAge && d.asked.After(d.didWork)
}

// look asks the device for its status and waits for the answer, at most timeout.
// Callers that ask at once share one question.
func (d *device) look(ctx context.Context, timeout time.Duration) keys.Status {
	d.mu.Lock()
	if d.looking == nil {
		d.looking = make(chan struct{})
		go d.refresh(d.looking)
	}
	over := d.looking
	d.mu.Unlock()
	wait := time.NewTimer(timeout)
	defer wait.Stop()
	select {
	case <-over:
	case <-wait.C:
	case <-ctx.Done():
	}
	return d.last()
}

// refresh asks the device for its status, and publishes a state that is not the one
// before.
func (d *device) refresh(over chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	asked := time.Now()
	now := d.backend.Status(ctx)
	d.mu.Lock()
	before := d.status.State
	d.status, d.asked, d.looking = now, asked, nil
	d.mu.Unlock()
	close(over)
	if before != now.State && (before != "" || now.State != keys.StateReady) {
		d.changed(now)
	}
}

func (d *device) last() keys.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// WatchDevices looks at each device that was not ready at the last look, every
// interval until ctx ends, so that the agent notices a recovery even if no caller
// signs. It does not ask a device that was never used: the first signature after a
// start should not wait for a status request.
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
	if _, comesAndGoes := a.devices[s.Backend].backend.(keys.Divided); s.State == keys.StateReady || comesAndGoes {
		a.Log.Info("device", "backend", s.Backend, "state", s.State, "reason", s.Reason)
	} else {
		hint, _ := wireStep(s.Hint, s.Next)
		a.Log.Warn("device", "backend", s.Backend, "device", s.Device, "state", s.State, "reason", s.Reason, "hint", hint)
	}
	a.watch.publish(event{what: "device", name: s.Backend, state: string(s.State)})
}

// invalidate invalidates the cached status.
func (d *device) invalidate() {
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
