package agent

import (
	"context"
	"sync"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/policy"
	"holdfast/internal/varlink"
)

// event is one change that Watch announces. An event about a key carries its
// owner, and only those who may list the key hear of it; one about everything that
// a user has carries the user.
type event struct {
	what, name, state string
	key               *keyID
	user              *uint32
}

// watchBacklog is how many events a slow watcher may be behind before it is
// dropped: it then connects again and asks for the present state. What a watcher
// may not hear takes no room in it: others could have it dropped.
const watchBacklog = 64

// watchers hands events to everybody who watches. Use init before anything else.
type watchers struct {
	mu   sync.Mutex
	subs map[*watcher]struct{}
	over bool
}

// watcher is one who watches.
type watcher struct {
	events  chan event // closed when there are no more
	may     func(event) bool
	dropped bool // it fell behind; set before events is closed
}

func (w *watchers) init() { w.subs = map[*watcher]struct{}{} }

// subscribe begins a watch of what may says that it may hear; may is called with
// mu held.
func (w *watchers) subscribe(may func(event) bool) *watcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &watcher{events: make(chan event, watchBacklog), may: may}
	if w.over {
		close(s.events)
		return s
	}
	w.subs[s] = struct{}{}
	return s
}

func (w *watchers) unsubscribe(s *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(s)
}

// drop is called with mu held.
func (w *watchers) drop(s *watcher) {
	if _, ok := w.subs[s]; ok {
		delete(w.subs, s)
		close(s.events)
	}
}

func (w *watchers) publish(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.subs {
		if !s.may(e) {
			continue
		}
		select {
		case s.events <- e:
		default:
			s.dropped = true
			w.drop(s)
		}
	}
}

// number is how many watch now.
func (w *watchers) number() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.subs)
}

// close ends every watch and those to come.
func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	for s := range w.subs {
		w.drop(s)
	}
}

// errWatchEnds is what a watcher is told who fell behind or whom the agent
// outlived.
var errWatchEnds = &fault.Error{Kind: fault.Busy, Message: "the watch ended", Hint: "connect again, and ask for the present state"}

// watchPulse is how often a watch makes sure that its caller still lives.
const watchPulse = 30 * time.Second

// watchCall sends changes as they come. Of keys a caller hears what policy lets
// them list at that moment, of the rest what policy lets them know of the agent. To
// who fell behind the last one is a lock of everything: one may be among what they
// missed.
func (a *Agent) watchCall(ctx context.Context, call *varlink.Call) error {
	var p agentwire.Empty
	if err := call.Decode(&p); err != nil {
		return err
	}
	r := a.newRequest(ctx)
	s := a.watch.subscribe(r.mayHear)
	defer a.watch.unsubscribe(s)
	pulse := time.NewTicker(watchPulse)
	defer pulse.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-call.Stopping():
			return errWatchEnds
		case <-pulse.C:
			if err := r.stillThere(); err != nil {
				return err
			}
		case e, ok := <-s.events:
			if !ok && s.dropped {
				if err := call.Continue(agentwire.WatchReply{What: "lock"}); err != nil {
					return err
				}
			}
			if !ok {
				return errWatchEnds
			}
			if !r.mayHear(e) {
				continue
			}
			if err := call.Continue(agentwire.WatchReply{What: e.what, Name: e.name, State: e.state}); err != nil {
				return err
			}
		}
	}
}

// mayHear reports whether the caller may know of an event. Of a lock of everything
// whoever it concerns hears, also who may ask nothing of the agent's state.
func (r *request) mayHear(e event) bool {
	if e.what == "lock" && e.key == nil {
		return e.user == nil || *e.user == r.conn.peer.UID || r.privileged()
	}
	if e.key == nil {
		return r.decide(policy.Status, "", r.self()).Allowed
	}
	rec, ok := r.agent.Store.Get(e.key.Owner, e.key.Name)
	if !ok {
		rec.Owner.UID = e.key.Owner // a key that is gone
	}
	return r.decide(policy.List, e.key.Name, rec.Owner).Allowed
}
