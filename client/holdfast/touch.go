package main

import (
	"context"
	"fmt"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// touchWanted notes that a signature waits for a touch.
func (a *app) touchWanted(k agentwire.Key) {
	where := "the security key"
	if k.Place != nil {
		where = fmt.Sprintf("card %d", k.Place.Card)
	}
	a.overProgress()
	a.note("touch %s: key %s waits for it, for at most %d s", where, k.Name, int(keys.MaxTouch.Seconds()))
}

// expectTouch notes when a call about a key that did not exist before waits for a
// touch, until done is called.
func (a *app) expectTouch(ctx context.Context, c *client.Client, name string, on *agentwire.OnCard) (done func()) {
	k := agentwire.Key{Name: name}
	if on != nil {
		k.Place = &agentwire.Place{Card: on.Card}
	}
	return c.AwaitTouch(ctx, name, func() { a.touchWanted(k) })
}
