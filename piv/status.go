package piv

import (
	"context"
	"slices"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// Unit returns the serial number of the card that m's key is on.
func (p *PIV) Unit(m keys.Material) string {
	if m.Backend != Backend || m.Card == nil || m.Card.Serial == 0 {
		return ""
	}
	return unitOf(m.Card.Serial)
}

// OnChange implements keys.Divided.
func (p *PIV) OnChange(f func(unit string, gone bool)) {
	p.scanner.mu.Lock()
	defer p.scanner.mu.Unlock()
	p.scanner.watch = append(p.scanner.watch, f)
}

// statusTime bounds Status for callers without a deadline.
const statusTime = 2 * time.Second

// Status reports the state of each card after the last request to it, and each reader
// whose card could not be identified. It sends nothing to cards, and starts the watch
// of the readers if needed. The backend is ready when any card is.
func (p *PIV) Status(ctx context.Context) keys.Status {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	_ = p.scanner.settle(ctx) // cards that are still unknown are not reported
	s := p.scanner.status()
	for _, unit := range s.Units {
		if unit.State == keys.StateReady {
			s.State, s.Since, s.Maker, s.Can, s.Reason, s.Hint, s.Next = unit.State, unit.Since, unit.Maker, unit.Can, "", "", fault.Next{}
			return s
		}
	}
	if len(s.Units) > 0 {
		first := s.Units[0]
		s.State, s.Since, s.Reason, s.Hint, s.Next, s.Can = first.State, first.Since, first.Reason, first.Hint, first.Next, first.Can
	}
	return s
}

// status returns the known state, with the backend's state as that without a card.
func (s *scanner) status() keys.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := keys.Status{Backend: Backend, Device: Backend, State: keys.StateAbsent, Since: s.since}
	e, _ := fault.AsError(s.missing(0, nil))
	if s.fault != nil {
		e = s.fault
	}
	if !s.looked {
		e = &fault.Error{Message: "the card readers have not been listed yet"}
	}
	all.Reason, all.Hint, all.Next = e.Message, e.Hint, e.Next
	for _, r := range s.identifiedCards() {
		one := r.status()
		if e := s.duplicate(r.serial); e != nil {
			one.State, one.Reason, one.Hint, one.Next = keys.StateFailed, e.Message, e.Hint, e.Next
		}
		all.Units = append(all.Units, one)
	}
	for _, r := range s.byName() {
		if r.fault != nil {
			all.Units = append(all.Units, keys.Status{
				Backend: Backend, Device: "reader:" + r.name, State: stateOf(r.fault), Since: r.since,
				Reason: r.fault.Message, Hint: r.fault.Hint, Next: r.fault.Next,
			})
		}
	}
	return all
}

// status is the status of one card. s.mu is held.
func (r *reader) status() keys.Status {
	s := keys.Status{
		Backend: Backend, Device: "card:" + unitOf(r.serial), Since: r.since, Maker: "PIV " + r.firmware, Can: slices.Clone(capabilities(r.firmware)),
	}
	w := r.worker
	w.health.Lock()
	defer w.health.Unlock()
	s.State, s.TriesLeft = w.state, w.tries
	if w.since.After(s.Since) {
		s.Since = w.since
	}
	if w.fault != nil {
		s.Reason, s.Hint, s.Next = w.fault.Message, w.fault.Hint, w.fault.Next
	}
	if e := spent(r.serial, w.tries, nil); e != nil && s.State == keys.StateReady {
		s.State, s.Reason, s.Hint, s.Next = keys.StateLocked, e.Message, e.Hint, e.Next
	}
	return s
}

// stateOf returns the state of a device that fails with e, or "" when e is not about
// the device.
func stateOf(e *fault.Error) keys.State {
	return map[fault.Kind]keys.State{
		fault.Deadline: keys.StateWedged, fault.DeviceWedged: keys.StateWedged, fault.DeviceFailed: keys.StateFailed,
		fault.DeviceAbsent: keys.StateAbsent, fault.Busy: keys.StateBusy,
	}[e.Kind]
}
