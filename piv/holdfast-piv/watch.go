package main

import (
	"time"

	"holdfast/piv/holdfast-piv/card"
	"holdfast/piv/holdfast-piv/pcsc"
	"holdfast/piv/wire"
)

// longestWatch bounds one wait for a change.
const longestWatch = 10 * time.Minute

// watch replies with the readers once they differ from the known ones.
func watch(r *wire.Request) *wire.Reply {
	known := make([]pcsc.Reader, len(r.Known))
	for i, k := range r.Known {
		known[i] = pcsc.Reader(k)
	}
	now, err := pcsc.Watch(known, min(r.Wait, longestWatch))
	if err != nil {
		return &wire.Reply{ID: r.ID, Error: wire.FromError(card.Fault("", err))}
	}
	reply := &wire.Reply{ID: r.ID, Readers: make([]wire.Reader, len(now))}
	for i, n := range now {
		reply.Readers[i] = wire.Reader(n)
	}
	return reply
}
