package clienttest

import (
	"context"

	"holdfast/internal/agentwire"
	"holdfast/internal/varlink"
)

// watch sends one change, then those that are announced.
func (a *Agent) watch(ctx context.Context, call *varlink.Call) error {
	news := make(chan agentwire.WatchReply, 16)
	a.mu.Lock()
	a.watchers[news] = true
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watchers, news)
	}()
	for next := (agentwire.WatchReply{What: "policy"}); ; {
		if err := call.Continue(next); err != nil {
			return err
		}
		select {
		case next = <-news:
		case <-ctx.Done():
			return call.Reply(agentwire.WatchReply{What: "policy"})
		case <-call.Stopping():
			return call.Reply(agentwire.WatchReply{What: "policy"})
		}
	}
}

// Announce sends a change to every watcher, and returns how many there are.
func (a *Agent) Announce(change agentwire.WatchReply) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for news := range a.watchers {
		news <- change
	}
	return len(a.watchers)
}
