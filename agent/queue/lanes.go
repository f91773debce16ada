package queue

import (
	"context"
	"sync"
	"time"
)

// Lanes are the queues of one backend: a shared one, and one lane for each unit
// that is in use, such as a card. While one unit waits for a touch, the others
// work. Its methods are safe for concurrent use.
type Lanes struct {
	limits  Limits
	shared  *Queue
	closing sync.WaitGroup  // lanes that were taken away
	ctx     context.Context // ends when these may take no longer
	cancel  context.CancelFunc

	mu     sync.Mutex // never held while work waits or runs
	units  map[string]*lane
	closed bool
}

// lane is the queue of one unit.
type lane struct {
	queue *Queue
	users int  // calls of Do that use it: it is closed only when there are none
	gone  bool // the unit is
}

// maxLanes is how many units have a lane at once. The others use the shared queue.
const maxLanes = 32

// NewLanes returns lanes that are each bounded by l. [Lanes.Close] ends them.
func NewLanes(l Limits) *Lanes {
	s := &Lanes{limits: l, shared: New(l), units: map[string]*lane{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Do is [Queue.Do] in the lane of a unit, or in the shared queue for an empty unit.
func (s *Lanes) Do(ctx context.Context, unit string, c Caller, work func(context.Context) error) error {
	l := s.enter(unit)
	if l == nil {
		return s.shared.Do(ctx, c, work)
	}
	defer s.leave(unit, l)
	return l.queue.Do(ctx, c, work)
}

// enter returns the lane of a unit, or nil where the shared queue serves the unit.
func (s *Lanes) enter(unit string) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	if unit == "" || s.closed {
		return nil
	}
	l := s.units[unit]
	if l == nil {
		if len(s.units) >= maxLanes && !s.evict() {
			return nil
		}
		l = &lane{queue: New(s.limits)}
		s.units[unit] = l
	}
	l.users++
	return l
}

// evict takes away one lane that has no users. The caller holds mu.
func (s *Lanes) evict() bool {
	for unit, l := range s.units {
		if l.users == 0 {
			s.end(unit, l)
			return true
		}
	}
	return false
}

func (s *Lanes) leave(unit string, l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users == 0 && l.gone {
		s.end(unit, l)
	}
}

// laneGrace is how long work whose callers have all left may still hold the lane of
// a unit that is gone.
const laneGrace = 5 * time.Second

// end takes away a lane that has no users. The caller holds mu.
func (s *Lanes) end(unit string, l *lane) {
	if s.closed {
		return // Close closes it
	}
	delete(s.units, unit)
	s.closing.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, laneGrace)
		defer cancel()
		l.queue.Close(ctx) // work that does not end is the backend's to end
	})
}

// Changed notes that a unit came or went. The lane of a unit that went is closed
// when its last caller has left.
func (s *Lanes) Changed(unit string, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.units[unit]
	if l == nil {
		return
	}
	if l.gone = gone; gone && l.users == 0 {
		s.end(unit, l)
	}
}

// Len returns how many units have a lane.
func (s *Lanes) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.units)
}

// queues returns every queue that is in use.
func (s *Lanes) queues() []*Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []*Queue{s.shared}
	for _, l := range s.units {
		list = append(list, l.queue)
	}
	return list
}

// Alive returns the error of [Queue.Alive] of the first queue that has one.
func (s *Lanes) Alive() error {
	for _, q := range s.queues() {
		if err := q.Alive(); err != nil {
			return err
		}
	}
	return nil
}

// Waiting returns how many requests wait in all queues.
func (s *Lanes) Waiting() int {
	n := 0
	for _, q := range s.queues() {
		n += q.Waiting()
	}
	return n
}

// Close is [Queue.Close] of all queues at once.
func (s *Lanes) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true // from here on units stays as it is
	s.mu.Unlock()
	list := s.queues()
	defer s.cancel()
	defer context.AfterFunc(ctx, s.cancel)()
	errs := make(chan error, len(list))
	for _, q := range list {
		go func() { errs <- q.Close(ctx) }()
	}
	var err error
	for range list {
		if e := <-errs; e != nil {
			err = e
		}
	}
	s.closing.Wait()
	return err
}
