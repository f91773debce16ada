package client

import (
	"context"
	"time"
)

// touchDelay is the time until a notice of a touch: most users touch the key earlier.
// The agent announces the touch when the device has not answered for most of that time;
// toldDelay is the rest.
const (
	touchDelay = time.Second
	toldDelay  = 300 * time.Millisecond
)

// AwaitTouch calls notice, from another goroutine, whenever key name has waited for a
// touch for about a second, until done is called; done does not wait for a notice to
// return. It learns of touches from [Client.Watch]; where that fails there is no
// notice.
func (c *Client) AwaitTouch(ctx context.Context, name string, notice func()) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t := time.AfterFunc(time.Hour, notice) // each event resets it
		t.Stop()
		defer t.Stop()
		_ = c.Watch(ctx, func(w Event) error { // without a watch there is no notice
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

// asksUser reports whether the agent may ask a user before the key signs.
func (k *Key) asksUser() bool {
	return k.info.PIN && k.info.UnlockedUntil == nil || k.info.Confirm != nil
}

// touches reports whether a signature of the key may wait for a touch.
func (k *Key) touches() bool {
	return k.info.Place != nil && k.info.Place.TouchPolicy != "never"
}

// awaitTouch is [Client.AwaitTouch] for one signature. A key that needs neither its
// PIN nor a confirmation can only be waiting for its touch, so no watch is needed.
func (k *Key) awaitTouch(ctx context.Context) (done func()) {
	tell := k.client.touch
	if tell == nil || !k.touches() {
		return func() {}
	}
	notice := func() { tell(k.info) }
	if k.asksUser() {
		return k.client.AwaitTouch(ctx, k.info.Name, notice)
	}
	t := time.AfterFunc(touchDelay, notice)
	return func() { t.Stop() }
}

// How long a call waits before the first report, and between two of them.
const (
	waitFirst = 3 * time.Second
	waitNext  = 5 * time.Second
)

// reportWait calls [Options.Waiting] while a call takes long, until done is called.
func (c *Client) reportWait() (done func()) {
	if c.waiting == nil {
		return func() {}
	}
	began, left, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTimer(waitFirst)
		defer t.Stop()
		for {
			select {
			case <-left:
				return
			case <-t.C:
				c.waiting(time.Since(began))
				t.Reset(waitNext)
			}
		}
	}()
	return func() { close(left); <-ended }
}
