package keystest

import (
	"context"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// faults are the faults that a test has ordered of a Memory. Memory.mu guards them.
type faults struct {
	delay   time.Duration
	wrong   bool
	err     error
	gate    chan struct{} // nil when open; closed by release
	waiting int           // calls that wait at the gate
	arrived chan struct{} // closed and replaced when one arrives
}

func newFaults() faults { return faults{arrived: make(chan struct{})} }

// Block makes every call that needs the device wait until release is called or
// its context ends. A second Block while blocked shares the first one's gate.
func (m *Memory) Block() (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.faults.gate == nil {
		m.faults.gate = make(chan struct{})
	}
	gate := m.faults.gate
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.faults.gate == gate {
			close(gate)
			m.faults.gate = nil
		}
	}
}

// WaitBlocked returns when a call waits because of Block.
func (m *Memory) WaitBlocked() {
	for {
		m.mu.Lock()
		waiting, arrived := m.faults.waiting, m.faults.arrived
		m.mu.Unlock()
		if waiting > 0 {
			return
		}
		<-arrived
	}
}

// Delay makes every call that needs the device take d.
func (m *Memory) Delay(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults.delay = d
}

// SignWrong makes Sign return, without complaint, signatures over another
// digest.
func (m *Memory) SignWrong(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults.wrong = on
}

func (m *Memory) signsWrong() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.faults.wrong
}

// Fail makes every call that needs the device return err, until it is called
// with nil. Where err's kind is that of a device state, Status shows the state.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults.err = err
	m.since = time.Now()
}

// show puts the state that belongs to the ordered failure into s.
func (f *faults) show(s *keys.Status) {
	e, ok := fault.AsError(f.err)
	if !ok {
		return
	}
	states := map[fault.Kind]keys.State{
		fault.DeviceAbsent: keys.StateAbsent, fault.DeviceLocked: keys.StateLocked, fault.DeviceWedged: keys.StateWedged,
		fault.DeviceFailed: keys.StateFailed, fault.IdentityChanged: keys.StateIdentityChanged, fault.Busy: keys.StateBusy,
	}
	if state, ok := states[e.Kind]; ok {
		s.State, s.Reason, s.Hint = state, e.Message, e.Hint
	}
}

// enter is the way to the device: it waits as ordered and fails as ordered.
func (m *Memory) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	m.mu.Lock()
	gate, delay := m.faults.gate, m.faults.delay
	m.mu.Unlock()
	if gate != nil {
		if err := m.queueAt(ctx, gate); err != nil {
			return err
		}
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ended(ctx)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return &fault.Error{Kind: fault.DeviceAbsent, Message: "the backend is closed"}
	}
	return m.faults.err
}

func (m *Memory) queueAt(ctx context.Context, gate <-chan struct{}) error {
	m.mu.Lock()
	m.faults.waiting++
	close(m.faults.arrived)
	m.faults.arrived = make(chan struct{})
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.faults.waiting--
		m.mu.Unlock()
	}()
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

func ended(ctx context.Context) error {
	return &fault.Error{Kind: fault.Deadline, Message: "the device did not answer in time", Err: context.Cause(ctx)}
}
