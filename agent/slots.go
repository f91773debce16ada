package agent

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"holdfast/agent/store"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
)

// A slot is one slot of a card. It holds one key, which has one record: a second record
// would give another user's key to a second owner, or let that owner overwrite it.
type slot struct {
	serial uint32
	name   string
}

func (s slot) String() string { return fmt.Sprintf("slot %s of card %d", s.name, s.serial) }

// claims are what requests that make or adopt keys have claimed: slots, the public keys
// whose records are being stored, and shares of the quotas. The zero value has none.
type claims struct {
	mu     sync.Mutex       // held while the records are searched: a claim ends after its record is stored
	held   map[any]struct{} // slots, and public keys as strings
	making map[uint32]quota // by uid
}

// quota counts the keys of one user.
type quota struct{ all, persistent int }

func (q *quota) add(n int, persistent bool) {
	q.all += n
	if persistent {
		q.persistent += n
	}
}

// share counts one more key of uid, until release is called. It reports false, and counts
// nothing, when uid has its share of keys, those that are being made included.
func (c *claims) share(uid uint32, persistent bool, records func() []store.Record) (release func(), ok bool) {
	count := func(n int) {
		q := c.making[uid]
		if q.add(n, persistent); q == (quota{}) {
			delete(c.making, uid)
			return
		}
		c.making[uid] = q
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.making == nil {
		c.making = map[uint32]quota{}
	}
	has := c.making[uid]
	for _, rec := range records() {
		if rec.Owner.UID == uid {
			has.add(1, rec.Persistent)
		}
	}
	if has.all >= maxKeys || persistent && has.persistent >= maxPersistent {
		return nil, false
	}
	count(1)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		count(-1)
	}, true
}

// hold keeps a slot or a public key for one request, until release is called: when its
// record is stored. It returns busy when another request claims it, and the error of
// check, which looks at the records.
func (c *claims) hold(claimed any, busy *fault.Error, check func() error) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.held[claimed]; taken {
		return nil, busy
	}
	if err := check(); err != nil {
		return nil, err
	}
	if c.held == nil {
		c.held = map[any]struct{}{}
	}
	c.held[claimed] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.held, claimed)
	}, nil
}

// claim keeps a slot for a request that makes or adopts a key in it. Where taken counts,
// it rejects a slot that a record of any user names.
func (r *request) claim(s slot, taken bool) (release func(), err error) {
	busy := &fault.Error{Kind: fault.Busy, Message: "another request makes or adopts a key in " + s.String(), Hint: "try again later, or choose another slot"}
	return r.agent.claims.hold(s, busy, func() error {
		rec, ok := r.agent.recordIn(s)
		if !ok || !taken {
			return nil
		}
		hint := "choose another slot, or ask the owner of that key whether it is still needed"
		if rec.Owner.UID == r.conn.peer.UID {
			hint = "choose another slot; `holdfast key show " + rec.Name + "` shows the key that is there"
		}
		return &fault.Error{Kind: fault.Denied, Message: s.String() + " holds a key of this agent", Hint: hint}
	})
}

// claimKey keeps a public key for a request that stores its record. It rejects a key
// that a record of any user has: the TPM does not prevent a user from adopting a key
// file twice, and a key has one purpose and one owner.
func (r *request) claimKey(public []byte) (release func(), err error) {
	busy := &fault.Error{Kind: fault.Busy, Message: "another request makes or adopts this key", Hint: "try again later"}
	return r.agent.claims.hold(string(public), busy, func() error {
		if !r.agent.known(public) {
			return nil
		}
		return &fault.Error{
			Kind: fault.Denied, Message: "the key is in use already: a record names it, and a key has one purpose",
			Hint: "make a key of its own for each purpose: `holdfast key create`",
		}
	})
}

// known reports whether a record of any user has this public key.
func (a *Agent) known(public []byte) bool {
	return slices.ContainsFunc(a.Store.List(), func(rec store.Record) bool { return bytes.Equal(rec.Material.Public, public) })
}

func (a *Agent) recordIn(s slot) (store.Record, bool) {
	for _, rec := range a.Store.List() {
		if p := rec.Material.Card; p != nil && p.Serial == s.serial && p.Slot == s.name {
			return rec, true
		}
	}
	return store.Record{}, false
}

// claimMade claims the slot that holds a new or adopted key, where the caller named no
// slot. For a new key the card chose an empty slot, so a record that names the slot is
// of a key that is lost.
func (r *request) claimMade(m keys.Material, t keys.Template) (release func(), err error) {
	if m.Card == nil || t.Card.Slot != "" {
		return func() {}, nil
	}
	return r.claim(slot{m.Card.Serial, m.Card.Slot}, adopts(t))
}

// adopts reports whether t is the template of a key to adopt. Its file names the
// algorithm.
func adopts(t keys.Template) bool { return t.Algorithm == "" }

// mayTry rejects a PIN for a card that the caller has no right to use: wrong PINs block
// the card for all its users. On a machine's agent the caller needs a key on the card,
// or policy must allow manage-cards.
func (r *request) mayTry(serial uint32) error {
	if !r.agent.System || r.decide(policy.ManageCards, "", r.self()).Allowed {
		return nil
	}
	for _, rec := range r.agent.Store.List() {
		if p := rec.Material.Card; p != nil && p.Serial == serial && rec.Owner.UID == r.conn.peer.UID {
			return nil
		}
	}
	return &fault.Error{
		Kind: fault.Denied, Message: fmt.Sprintf("uid %d has no key on card %d and may not manage cards", r.conn.peer.UID, serial),
		Hint: "a user whom policy allows manage-cards makes or adopts the first key; `holdfast policy check` names the rule that decides",
	}
}

// cardReference is the type of a PEM block that names a key on a card. Package piv
// parses the rest of the block.
const cardReference = "HOLDFAST PIV KEY"

// cardOf returns the serial number of the card that a file to adopt names, 0 for none.
func cardOf(file []byte) uint32 {
	block, _ := pem.Decode(file)
	if block == nil || block.Type != cardReference {
		return 0
	}
	serial, err := strconv.ParseUint(block.Headers["Card"], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(serial)
}
