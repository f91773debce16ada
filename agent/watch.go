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

// event is one change that Watch announces. An event about a key names its owner, and
// goes only to callers that may list the key. An event about all keys of a user names
// the user.
type event struct {
	what, name, state string
	key               *keyID
	user              *uint32
}

// watchBacklog is how many events a watcher may lag before it is dropped: it then
// connects again and asks for the present state. An event that the watcher may not see
// does not count, so that other users cannot have it dropped.
const watchBacklog = 64

// watchers delivers events to every watcher. Use init before anything else.
type watchers struct {
	mu   sync.Mutex
	subs map[*watcher]struct{}
	over bool
}

// watcher is one Watch call in progress.
type watcher struct {
	events  chan event // closed when there are no more
	may     func(event) bool
	dropped bool // it lagged; set before events is closed
}

func (w *watchers) init() { w.subs = map[*watcher]struct{}{} }

// subscribe begins a watch of the events for which may is true; may is called with mu
// held.
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

// number returns how many watchers there are.
func (w *watchers) number() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.subs)
}

// close ends every watch, and later ones at once.
func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	for s := range w.subs {
		w.drop(s)
	}
}

// errWatchEnds ends a watch that lagged or that the agent's shutdown cut.
var errWatchEnds = &fault.Error{Kind: fault.Busy, Message: "the watch ended", Hint: "connect again, and ask for the present state"}

// watchPulse is how often a watch checks that its caller is alive.
const watchPulse = 30 * time.Second

// watchCall sends changes as they come. The caller gets events about keys that policy
// lets it list at that moment, and other events if policy lets it see the status. A
// watcher that lagged gets a lock of everything as its last event, because a lock may be
// among the events that it missed.
func (a *Agent) watchCall(ctx context.Context, call *varlink.Call) error {
	var p agentwire.Empty
	if err := call.Decode(&p); err != nil {
		return err
	}
	r := a.newRequest(ctx)
	s := a.watch.subscribe(r.maySee)
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
			if err := r.callerAlive(); err != nil {
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
			if !r.maySee(e) {
				continue
			}
			if err := call.Continue(agentwire.WatchReply{What: e.what, Name: e.name, State: e.state}); err != nil {
				return err
			}
		}
	}
}

// maySee reports whether the caller may get an event. A lock of all keys goes to every
// caller whose keys it locks and to administrators, even if policy does not let the
// caller see the status.
func (r *request) maySee(e event) bool {
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
