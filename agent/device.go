package agent

import (
	"context"
	"sync"
	"time"

	"holdfast/agent/keys"
	"holdfast/agent/queue"
)

// device is a backend, the queue in front of it, and what it last said of its
// state.
type device struct {
	backend keys.Backend
	queue   *queue.Queue
	changed func(keys.Status)

	mu     sync.Mutex
	status keys.Status
}

func newDevice(b keys.Backend, l queue.Limits, changed func(keys.Status)) *device {
	return &device{backend: b, queue: queue.New(l), changed: changed}
}

// do runs work on the device in the caller's turn. A failure that may mean that
// the device changed its state makes the agent look.
func (d *device) do(ctx context.Context, c queue.Caller, work func(context.Context) error) error {
	err := d.queue.Do(ctx, c, work)
	switch keys.KindOf(err) {
	case keys.DeviceAbsent, keys.DeviceLocked, keys.DeviceWedged, keys.DeviceFailed, keys.IdentityChanged, keys.Busy:
		go d.look(context.WithoutCancel(ctx), time.Second)
	}
	return err
}

// ask runs work on d in the caller's turn and returns its result. A caller who
// gives up first gets no result, whatever becomes of the work.
func ask[T any](ctx context.Context, d *device, c queue.Caller, work func(context.Context) (T, error)) (T, error) {
	result := make(chan T, 1)
	err := d.do(ctx, c, func(ctx context.Context) error {
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

// look asks the device for its state, waiting for at most patience, and tells
// whoever watches when it is another one than before.
func (d *device) look(ctx context.Context, patience time.Duration) keys.Status {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	now := d.backend.Status(ctx)
	d.mu.Lock()
	before := d.status.State
	d.status = now
	d.mu.Unlock()
	if before != "" && before != now.State {
		d.changed(now)
	}
	return now
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
	a.Log.Info("device", "backend", s.Backend, "state", s.State, "reason", s.Reason)
	a.watch.publish(event{what: "device", name: s.Backend, state: string(s.State)})
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
		return nil, &keys.Error{Kind: keys.DeviceAbsent, Message: "the agent runs without a device", Hint: "start it with --device; `holdfast doctor` says which ones there are"}
	}
	return nil, &keys.Error{Kind: keys.Unsupported, Message: "this agent has no backend " + backend, Hint: "`holdfast status` lists the devices"}
}
