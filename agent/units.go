package agent

import (
	"context"
	"sync"
	"time"

	"holdfast/agent/queue"
	"holdfast/internal/keys"
)

// unitID names one of a backend's devices. The unit is empty where the backend has
// only one, and for what concerns none in particular.
type unitID struct{ backend, unit string }

// A worker runs work in its caller's turn: a device as a whole, or one unit of it.
type worker interface {
	do(ctx context.Context, c queue.Caller, work func(context.Context) error) error
}

// A station is one unit of a device.
type station struct {
	*device
	unit string
}

func (s station) do(ctx context.Context, c queue.Caller, work func(context.Context) error) error {
	return s.doAt(ctx, s.unit, c, work)
}

// unitOf returns what m is on.
func (d *device) unitOf(m keys.Material) unitID {
	id := unitID{backend: d.backend.Name()}
	if divided, ok := d.backend.(keys.Divided); ok {
		id.unit = divided.Unit(m)
	}
	return id
}

// of returns the part of d that works for m.
func (d *device) of(m keys.Material) station { return station{d, d.unitOf(m).unit} }

// ofCard is of for what is going to be on a card; 0 is none in particular.
func (d *device) ofCard(serial uint32) station {
	if serial == 0 {
		return station{device: d}
	}
	return d.of(keys.Material{Backend: d.backend.Name(), Card: &keys.Place{Serial: serial}})
}

func (a *Agent) unitOf(m keys.Material) unitID {
	if d, err := a.device(m.Backend); err == nil {
		return d.unitOf(m)
	}
	return unitID{}
}

// queues are those in front of one backend: its own, and one for each unit that is
// in use. While one unit waits for a touch, the others work.
type queues struct {
	limits queue.Limits
	own    *queue.Queue
	ended  sync.WaitGroup  // queues of units that are being closed
	ctx    context.Context // ends when they may take no longer
	cancel context.CancelFunc

	mu    sync.Mutex // never held while work waits or runs
	units map[string]*lane
	over  bool
}

// lane is the queue of one unit.
type lane struct {
	queue *queue.Queue
	users int  // who use it now: it is closed only when nobody does
	gone  bool // the unit is
}

// maxUnits is how many units have queues of their own at once. More share the
// backend's own.
const maxUnits = 32

func newQueues(l queue.Limits) *queues {
	q := &queues{limits: l, own: queue.New(l), units: map[string]*lane{}}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	return q
}

// do runs work in the caller's turn on a unit.
func (q *queues) do(ctx context.Context, unit string, c queue.Caller, work func(context.Context) error) error {
	l := q.enter(unit)
	if l == nil {
		return q.own.Do(ctx, c, work)
	}
	defer q.leave(unit, l)
	return l.queue.Do(ctx, c, work)
}

// enter returns the unit's lane, or nil where it has none of its own.
func (q *queues) enter(unit string) *lane {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.units[unit]
	switch {
	case unit == "" || q.over:
		return nil
	case l == nil && len(q.units) >= maxUnits:
		if !q.makeRoom() {
			return nil
		}
		fallthrough
	case l == nil:
		l = &lane{queue: queue.New(q.limits)}
		q.units[unit] = l
	}
	l.users++
	return l
}

// makeRoom takes away the lane of a unit that nobody uses. The caller holds mu.
func (q *queues) makeRoom() bool {
	for unit, l := range q.units {
		if l.users == 0 {
			q.end(unit, l)
			return true
		}
	}
	return false
}

func (q *queues) leave(unit string, l *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.users--; l.users == 0 && l.gone {
		q.end(unit, l)
	}
}

// laneGrace is how long work whose callers have all left may still hold the lane of
// a unit that is gone.
const laneGrace = 5 * time.Second

// end takes a lane away that nobody uses. The caller holds mu.
func (q *queues) end(unit string, l *lane) {
	if q.over {
		return // close closes it
	}
	delete(q.units, unit)
	q.ended.Go(func() {
		ctx, cancel := context.WithTimeout(q.ctx, laneGrace)
		defer cancel()
		l.queue.Close(ctx) // what does not end is the backend's to end
	})
}

// changed notes that a unit came or went.
func (q *queues) changed(unit string, gone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.units[unit]
	if l == nil {
		return
	}
	if l.gone = gone; gone && l.users == 0 {
		q.end(unit, l)
	}
}

// all returns every queue that is in use.
func (q *queues) all() []*queue.Queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.list()
}

// list is all for who holds mu.
func (q *queues) list() []*queue.Queue {
	list := []*queue.Queue{q.own}
	for _, l := range q.units {
		list = append(list, l.queue)
	}
	return list
}

// alive returns an error when a loop no longer picks up work.
func (q *queues) alive() error {
	for _, one := range q.all() {
		if err := one.Alive(); err != nil {
			return err
		}
	}
	return nil
}

// waiting is how many requests wait.
func (q *queues) waiting() int {
	n := 0
	for _, one := range q.all() {
		n += one.Stats().Waiting
	}
	return n
}

// close lets what waits finish until ctx ends, on all units at once.
func (q *queues) close(ctx context.Context) error {
	q.mu.Lock()
	q.over = true
	list := q.list()
	q.mu.Unlock()
	defer q.cancel()
	defer context.AfterFunc(ctx, q.cancel)()
	errs := make(chan error, len(list))
	for _, one := range list {
		go func() { errs <- one.Close(ctx) }()
	}
	var err error
	for range list {
		if e := <-errs; e != nil {
			err = e
		}
	}
	q.ended.Wait()
	return err
}
