package piv

import (
	"time"

	"holdfast/internal/fault"
	"holdfast/piv/wire"
)

// A reader is one reader with the card that is in it: for another card there is
// another reader. scanner.mu guards the fields that change.
type reader struct {
	name   string
	worker *worker // never nil
	after  func()  // returns when the child for the previous card has ended

	seen     wire.Reader
	serial   uint32 // 0: not identified
	firmware string
	since    time.Time    // when the card was identified, or its identification failed
	fault    *fault.Error // why the card could not be identified
	tries    int          // failed identifications
	looking  bool         // a child is identifying the card
	awaited  bool         // callers wait for the result
	timer    *time.Timer  // of the next try; nil before the first failure
}

func newReader(c Config, seen wire.Reader) *reader {
	return &reader{name: seen.Name, seen: seen, since: time.Now(), worker: newWorker(c, seen.Name), after: func() {}}
}

// identify asks a child of its own which card is in r, so that a card that hangs does
// not delay the others. s.mu is held.
func (s *scanner) identify(r *reader) {
	r.looking, r.awaited = true, r.awaited || r.tries == 0
	limit := min(s.config.limits.identify<<min(r.tries, 10), s.config.limits.operation)
	s.work.Go(func() {
		r.after()
		k := newKeeper(s.config)
		defer k.close()
		reply, _, err := k.do(s.ctx, wire.Request{Op: wire.Identify, Reader: r.name, Wait: waitWithin(limit)}, callOptions{limit: limit})
		if err == nil && reply.Error != nil {
			err = reply.Error.Keys()
		}
		if err == nil && reply.Serial == 0 {
			err = &fault.Error{Kind: fault.DeviceFailed, Message: "the card in the reader " + quoted(r.name) + " has no serial number"}
		}
		s.identified(r, reply, err)
		s.report()
	})
}

// identified stores which card is in r, or schedules the next try.
func (s *scanner) identified(r *reader, reply *wire.Reply, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.looking, r.awaited, r.since = false, false, time.Now()
	s.broadcast()
	if s.readers[r.name] != r || s.closed {
		return // the reader or its card has changed meanwhile
	}
	if err == nil {
		r.serial, r.firmware, r.fault, r.tries = reply.Serial, reply.Firmware, nil, 0
		s.events = append(s.events, event{r.serial, false})
		return
	}
	r.fault = faultOf(r, err)
	r.tries++
	s.config.Log.Info("card not identified", "reader", r.name, "why", err, "tries", r.tries)
	if r.fault.Kind == fault.DeviceAbsent && r.tries >= maxAbsent {
		return
	}
	r.timer = time.AfterFunc(pauseAfter(r), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.retry(r)
	})
}

// retry identifies r again, unless its card is known or gone. s.mu is held.
func (s *scanner) retry(r *reader) bool {
	if s.closed || r.looking || r.serial != 0 || s.readers[r.name] != r {
		return false
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	s.identify(r)
	return true
}

// maxAbsent bounds the tries to identify a card that holdfast does not support.
const maxAbsent = 3

// pauseAfter is the backoff after r's latest failure. There is no event when another
// program releases a card.
func pauseAfter(r *reader) time.Duration {
	grown := 500 * time.Millisecond << min(r.tries-1, 10)
	if r.fault.Kind == fault.Busy {
		return min(grown, 4*time.Second)
	}
	return min(2*grown, time.Minute)
}

// faultOf returns the fault of a reader whose card could not be identified.
func faultOf(r *reader, err error) *fault.Error {
	e, ok := fault.AsError(err)
	switch {
	case ok && e.Kind == fault.Busy && r.fault != nil && r.fault.Kind == fault.DeviceWedged:
		return r.fault // the card is busy with the command of the child that was killed
	case !ok:
		return &fault.Error{Kind: fault.DeviceFailed, Message: "the card in the reader " + quoted(r.name) + " cannot be read", Err: err}
	case stateOf(e) == "": // the card rejects what every PIV card does
		return &fault.Error{Kind: fault.DeviceFailed, Message: e.Message, Hint: e.Hint, Next: e.Next, Err: err}
	case e.Kind == fault.Deadline:
		return &fault.Error{Kind: fault.DeviceWedged, Message: "the card in the reader " + quoted(r.name) + " does not answer", Hint: hintHangs, Err: err}
	}
	return e
}
