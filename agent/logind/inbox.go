package logind

import (
	"sync"

	"github.com/godbus/dbus/v5"
)

// maxWaiting is how many signals may wait: logind sends a few for each session.
const maxWaiting = 256

// inbox takes signals as they come from the bus, and keeps those of logind. Anybody on
// the bus can send this process a signal that it has not asked for, with logind's
// interface on it: only the sender's unique name, which the bus writes, tells.
type inbox struct {
	signals chan *dbus.Signal
	over    chan struct{} // closed when the connection has ended, or signals were lost

	mu    sync.Mutex
	owner *string // logind's unique name; empty when there is none, nil before the bus has said
	ended bool
}

func newInbox() *inbox {
	return &inbox{signals: make(chan *dbus.Signal, maxWaiting), over: make(chan struct{})}
}

var (
	_ dbus.SignalHandler = (*inbox)(nil)
	_ dbus.Terminator    = (*inbox)(nil)
)

// DeliverSignal is called by the connection for each signal, in the order in which
// they came.
func (i *inbox) DeliverSignal(_, _ string, s *dbus.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if name, ok := newOwner(s); ok {
		i.owner = &name
	} else if i.owner == nil || *i.owner == "" || s.Sender != *i.owner {
		return
	}
	select {
	case i.signals <- s:
	default:
		i.end() // one may have been the lock: begin anew, and ask
	}
}

// first says who logind is, unless the bus has told of a later one already.
func (i *inbox) first(owner string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.owner != nil {
		return
	}
	i.owner = &owner
	i.signals <- &dbus.Signal{Sender: theBus, Name: ownerSignal, Body: []any{login1, "", owner}} // the first one in
}

// Terminate is called when the connection ends.
func (i *inbox) Terminate() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.end()
}

func (i *inbox) end() {
	if !i.ended {
		i.ended = true
		close(i.over)
	}
}

// newOwner returns who is logind from now on, or "" when nobody is.
func newOwner(s *dbus.Signal) (name string, ok bool) {
	if s.Sender != theBus || s.Name != ownerSignal || len(s.Body) != 3 || s.Body[0] != login1 {
		return "", false
	}
	name, ok = s.Body[2].(string)
	return name, ok
}
