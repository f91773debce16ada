package client

import (
	"context"
	"time"

	"holdfast/internal/agentwire"
)

// touchDelay is for how long a key waits for a touch before a person is told: most
// have the finger on it by then. The agent tells that one is wanted when the device
// has been silent for most of this time.
const (
	touchDelay = time.Second
	toldDelay  = 300 * time.Millisecond
)

// AwaitTouch calls notice, from another goroutine, whenever key name has waited for
// a touch for about a second, as [Client.Watch] tells it, until done is called; done does
// not wait for a notice to return. It is for calls that use a key which wants
// touches. Where the agent does not tell there is no notice.
func (c *Client) AwaitTouch(ctx context.Context, name string, notice func()) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t := time.AfterFunc(time.Hour, notice) // set anew by each event
		t.Stop()
		defer t.Stop()
		_ = c.Watch(ctx, func(w agentwire.WatchReply) error { // what ends it, ends it
			switch {
			case w.What != "touch" || w.Name != name:
			case w.State == "wanted":
				t.Reset(toldDelay)
			default:
				t.Stop()
			}
			return nil
		})
	}()
	return func() { cancel(); <-ended }
}

// awaitTouch is [Client.AwaitTouch] for one signature of a key. A silent key that
// needs neither its PIN nor a yes can only be waiting for its touch, and is not
// asked.
func (k *Key) awaitTouch(ctx context.Context) (done func()) {
	tell := k.client.touch
	if tell == nil || k.info.Place == nil || k.info.Place.TouchPolicy == "never" {
		return func() {}
	}
	notice := func() { tell(k.info) }
	if k.info.PIN && k.info.UnlockedUntil == nil || k.info.Confirm != nil {
		return k.client.AwaitTouch(ctx, k.info.Name, notice)
	}
	t := time.AfterFunc(touchDelay, notice)
	return func() { t.Stop() }
}
