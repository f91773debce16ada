package main

import (
	"context"
	"fmt"

	"holdfast/agent/keys"
	"holdfast/agent/wire"
	"holdfast/client"
)

// touchWanted tells the person that a signature waits for them.
func (a *app) touchWanted(k wire.Key) {
	where := "the security key"
	if k.Place != nil {
		where = fmt.Sprintf("card %d", k.Place.Card)
	}
	a.overAlive()
	a.note("touch %s: key %s waits for it, for at most %d s", where, k.Name, int(keys.MaxTouch.Seconds()))
}

// expectTouch has the person told when a call about a key that was not there before
// waits for a touch, until done is called.
func (a *app) expectTouch(ctx context.Context, c *client.Client, name string, on *wire.OnCard) (done func()) {
	k := wire.Key{Name: name}
	if on != nil {
		k.Place = &wire.Place{Card: on.Card}
	}
	return c.AwaitTouch(ctx, name, func() { a.touchWanted(k) })
}
