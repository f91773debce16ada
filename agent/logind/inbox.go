package logind

import (
	"sync"

	"github.com/godbus/dbus/v5"
)

// maxWaiting bounds the queued signals: logind sends a few for each session.
const maxWaiting = 256

// inbox queues logind's signals in the order in which the bus delivers them. Any
// program on the bus can send this process a signal with logind's interface, also
// one that it did not subscribe to: only the sender's unique name, which the bus
// sets, identifies logind.
type inbox struct {
	signals chan *dbus.Signal
	over    chan struct{} // closed when the connection has ended, or signals were lost

	mu    sync.Mutex
	owner *string // logind's unique name; empty while there is no logind, nil until the bus has answered
	ended bool
}

func newInbox() *inbox {
	return &inbox{signals: make(chan *dbus.Signal, maxWaiting), over: make(chan struct{})}
}

var (
	_ dbus.SignalHandler = (*inbox)(nil)
	_ dbus.Terminator    = (*inbox)(nil)
)

// DeliverSignal implements dbus.SignalHandler: the connection calls it for each
// signal in order.
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
		i.end() // the lost signal may be a lock: reconnect, and ask for the state
	}
}

// first sets logind's name, unless the bus has announced a later one already.
func (i *inbox) first(owner string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.owner != nil {
		return
	}
	i.owner = &owner
	i.signals <- &dbus.Signal{Sender: theBus, Name: ownerSignal, Body: []any{login1, "", owner}} // the first one in
}

// Terminate implements dbus.Terminator: the connection calls it when it ends.
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

// newOwner returns the unique name of the new logind, "" when it has left, if s
// announces that.
func newOwner(s *dbus.Signal) (name string, ok bool) {
	if s.Sender != theBus || s.Name != ownerSignal || len(s.Body) != 3 || s.Body[0] != login1 {
		return "", false
	}
	name, ok = s.Body[2].(string)
	return name, ok
}
