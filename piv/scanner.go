package piv

import (
	"context"
	"slices"
	"sync"
	"time"

	"holdfast/internal/fault"
	"holdfast/piv/wire"
)

// A scanner tracks which card is in which reader, through a child that waits for
// pcscd's events.
type scanner struct {
	config Config
	child  *keeper
	ctx    context.Context // ends with close
	end    context.CancelFunc
	kick   chan struct{} // holds one token when the readers are to be listed now
	work   sync.WaitGroup

	mu      sync.Mutex         // guards the fields below; held only briefly
	started bool               //
	closed  bool               //
	readers map[string]*reader // by name
	last    []wire.Reader      // in pcscd's order
	fault   *fault.Error       // why the readers cannot be listed; nil when they can
	since   time.Time          // when fault last changed
	looked  bool               // the readers were listed since the start or since kick
	changed chan struct{}      // closed and replaced when a field above changes
	events  []event            // not reported yet
	watch   []func(unit string, gone bool)

	reporting sync.Mutex // held while events are reported, in order
}

// An event is a card that was inserted or removed.
type event struct {
	serial uint32
	gone   bool
}

func newScanner(c Config) *scanner {
	ctx, cancel := context.WithCancel(context.Background())
	return &scanner{
		config: c, child: newKeeper(c), ctx: ctx, end: cancel, kick: make(chan struct{}, 1),
		readers: map[string]*reader{}, changed: make(chan struct{}), since: time.Now(),
	}
}

// start starts the watch, once.
func (s *scanner) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &fault.Error{Kind: fault.DeviceAbsent, Message: "the backend is closed"}
	}
	if !s.started {
		s.started = true
		s.work.Go(s.run)
	}
	return nil
}

// longestWait is how long the child is asked to wait for a change. After it, one
// message asks again.
const longestWait = time.Minute

// run watches the readers until close. The first request, and the first after a
// failure, does not wait for a change.
func (s *scanner) run() {
	var wait time.Duration
	for failures := 0; s.ctx.Err() == nil; {
		reply, _, err := s.child.do(s.ctx, wire.Request{Op: wire.Readers, Known: s.known(), Wait: wait}, callOptions{limit: wait + s.config.limits.operation})
		if err == nil && reply.Error != nil {
			err = reply.Error.Keys()
		}
		if err == nil {
			s.update(reply.Readers)
			wait, failures = longestWait, 0
			continue
		}
		// A child that ended by itself is replaced: the readers are the same.
		wait = 0
		if failures++; failures > 2 || fault.KindOf(err) == fault.DeviceAbsent {
			s.dropAll(err)
			s.pause(min(100*time.Millisecond<<min(failures, 10), s.config.limits.absent))
		}
	}
}

// pause waits until it is time to try pcscd again. There is no event for its start:
// it may not even be installed.
func (s *scanner) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.kick:
	case <-s.ctx.Done():
	}
}

// maxReaders bounds the watched readers: pcscd supports 16.
const maxReaders = 32

// known returns the readers of the last reply.
func (s *scanner) known() []wire.Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// update stores the readers of a reply. An exchanged card counts as one removed and one
// inserted card.
func (s *scanner) update(list []wire.Reader) {
	s.mu.Lock()
	now := map[string]*reader{}
	for _, seen := range list[:min(len(list), maxReaders)] {
		r := s.readers[seen.Name]
		if r == nil || r.seen.Present != seen.Present || r.seen.Changes != seen.Changes {
			r = newReader(s.config, seen)
		}
		r.seen = seen
		now[seen.Name] = r
	}
	s.replace(now)
	if s.fault != nil {
		s.since = time.Now()
	}
	s.last, s.fault, s.looked = list, nil, true
	s.broadcast()
	s.mu.Unlock()
	s.report()
}

// dropAll drops all readers, because they cannot be listed any more.
func (s *scanner) dropAll(err error) {
	e, ok := fault.AsError(err)
	if !ok {
		e = &fault.Error{Kind: fault.DeviceFailed, Message: "the card readers cannot be watched", Err: err}
	}
	s.mu.Lock()
	if s.fault == nil || s.fault.Message != e.Message {
		s.config.Log.Warn("no card readers", "why", err)
		s.since = time.Now()
	}
	s.replace(nil)
	s.last, s.fault, s.looked = nil, e, true
	s.broadcast()
	s.mu.Unlock()
	s.report()
}

// replace replaces the readers with now: it ends the children of removed cards and
// identifies new cards. s.mu is held.
func (s *scanner) replace(now map[string]*reader) {
	for name, r := range s.readers {
		if now[name] == r {
			continue
		}
		reaped := r.worker.kill()
		if !s.closed {
			s.work.Go(reaped)
		}
		if next := now[name]; next != nil {
			next.after = reaped // until then the old child holds the card
		}
		if r.timer != nil {
			r.timer.Stop()
		}
		if r.serial != 0 {
			s.events = append(s.events, event{r.serial, true})
		}
	}
	if s.closed {
		now = nil
	}
	for name, r := range now {
		if s.readers[name] != r && r.seen.Present {
			s.identify(r)
		}
	}
	s.readers = now
}

// broadcast wakes all waiters for a change. s.mu is held.
func (s *scanner) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// report reports the events in their order.
func (s *scanner) report() {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	for {
		s.mu.Lock()
		if len(s.events) == 0 {
			s.mu.Unlock()
			return
		}
		e, watch := s.events[0], slices.Clone(s.watch)
		s.events = s.events[1:]
		s.mu.Unlock()
		s.config.Log.Info("card", "serial", e.serial, "gone", e.gone)
		for _, f := range watch {
			f(unitOf(e.serial), e.gone)
		}
	}
}

// close ends the watch and all children, and returns when they are reaped.
func (s *scanner) close() {
	s.mu.Lock()
	s.closed = true
	readers := s.readers
	s.mu.Unlock()
	s.end()
	s.child.close()
	for _, r := range readers {
		r.worker.close()
	}
	s.work.Wait()
}
