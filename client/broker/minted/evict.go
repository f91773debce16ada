package minted

import (
	"fmt"
	"time"

	"holdfast/internal/fault"
)

// entry returns the entry for r, made when there is none.
func (m *Mint) entry(r Request) (*entry, error) {
	if m.closed {
		return nil, errClosed
	}
	id := identify(r)
	if e := m.entries[id]; e != nil {
		return e, nil
	}
	if err := m.makeRoom(id.uid); err != nil {
		return nil, err
	}
	e := &entry{id: id}
	m.entries[id] = e
	return e, nil
}

// makeRoom evicts the least recently used entry when there are too many, of the uid or
// in all.
func (m *Mint) makeRoom(uid uint32) error {
	own := 0
	for id := range m.entries {
		if id.uid == uid {
			own++
		}
	}
	tooMany := own >= perUID
	if !tooMany && len(m.entries) < total {
		return nil
	}
	var oldest *entry
	for id, e := range m.entries {
		if (id.uid == uid || !tooMany) && e.minting == nil && (oldest == nil || e.used.Before(oldest.used)) {
			oldest = e
		}
	}
	if oldest == nil {
		return &fault.Error{Kind: fault.Busy, Message: fmt.Sprintf("too many credentials are being obtained (%d)", len(m.entries)), Hint: "try again", RetryAfter: time.Second}
	}
	m.remove(oldest)
	return nil
}

// remove forgets an entry. The lock is held.
func (m *Mint) remove(e *entry) {
	if e.timer != nil {
		e.timer.Stop()
	}
	if e.minting != nil {
		e.minting.cancel()
	}
	if e.held != nil && e.held.probing != nil {
		e.held.probing.cancel()
	}
	delete(m.entries, e.id)
	m.recount(e.id.profile)
}

// recount sets the gauge of a profile. The lock is held.
func (m *Mint) recount(name string) {
	m.counts.held.Set(float64(m.count(name)), name)
}
