package ticket

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/peer"
	"holdfast/internal/printable"
	"holdfast/internal/proc"
)

// maxClaims bounds a token, which is in the header of every request. A ticket whose
// claims are longer, of a user in hundreds of groups, ends with its table.
const maxClaims = 4 << 10

// claims say what a ticket is for. They are secret to nobody: the MAC makes the token.
type claims struct {
	Table   string // that issued it
	Nonce   string
	Process Process
	Plugin  *peer.Identity `json:",omitempty"` // who asked for it; nil where it would be too long
	Profile string
	Expires time.Time
}

// forgotten says whose tickets were forgotten: of a profile, or of all when it is empty;
// of one uid, or of every uid.
type forgotten struct {
	profile  string
	uid      uint32
	everyUID bool
}

// UseKey has the table compute tokens with a key that the table of the next broker has
// too. That table accepts them until they expire, while their process lives, and
// unless it has forgotten the tickets of the profile meanwhile. The key has to be
// another one after each start of the machine: a pid and a start time are then another
// process's. Call it before the first ticket is issued.
func (t *Table) UseKey(key []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.key, t.kept = key, true
}

// mac returns the MAC of claims. The key does not change once tickets are issued.
func (t *Table) mac(claims string) string {
	mac := hmac.New(sha256.New, t.key)
	mac.Write([]byte(claims))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// claims returns the claims of a new ticket.
func (t *Table) claims(h *Holder, plugin peer.Identity) string {
	c := claims{Table: t.id, Nonce: rand.Text(), Process: h.Process, Plugin: &plugin, Profile: h.Profile, Expires: h.wall}
	text, _ := json.Marshal(c) // of numbers and strings, which always marshal
	if len(text) > maxClaims {
		c.Plugin = nil
		text, _ = json.Marshal(c)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// restore enters a ticket of an earlier table again. It returns nil when it cannot.
func (t *Table) restore(token string) *Holder {
	t.mu.Lock()
	c, encoded := t.verify(token)
	t.mu.Unlock()
	if c == nil {
		return nil
	}
	p := find(c.Process)
	if p == nil {
		return nil
	}
	h := t.enter(c, encoded, p)
	if h != nil && t.options.Restored != nil {
		t.options.Restored(c.Process, *c.Plugin, h.wall)
	}
	return h
}

// verify returns the claims of a token that an earlier table issued and that this one
// may accept, or nil. The caller holds the lock.
func (t *Table) verify(token string) (*claims, string) {
	rest, isTicket := strings.CutPrefix(token, Prefix)
	encoded, mac, hasMAC := strings.Cut(rest, ".")
	if !isTicket || !hasMAC || !t.kept || t.closed || !hmac.Equal([]byte(mac), []byte(t.mac(encoded))) {
		return nil, ""
	}
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	c := &claims{}
	if err != nil || json.Unmarshal(text, c) != nil || c.Plugin == nil {
		return nil, ""
	}
	if c.Table == t.id || !time.Now().Before(c.Expires) { // it was forgotten, or has expired
		return nil, ""
	}
	if t.hasForgotten(c) {
		return nil, ""
	}
	return c, encoded
}

// hasForgotten reports whether Forget or ForgetAll were about the ticket. The caller holds
// the lock.
func (t *Table) hasForgotten(c *claims) bool {
	return t.dropped[forgotten{"", 0, true}] || t.dropped[forgotten{c.Profile, 0, true}] || t.dropped[forgotten{c.Profile, c.Process.UID, false}]
}

// enter enters a ticket of an earlier table, unless there is no room.
func (t *Table) enter(c *claims, encoded string, fresh *process) *Holder {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() {
		if len(fresh.holders) == 0 {
			fresh.close()
		}
	}()
	now := time.Now()
	h := &Holder{Process: c.Process, Profile: c.Profile, process: t.known(fresh), claims: encoded}
	if known := t.holders[sha256.Sum256([]byte(t.ticket(h).Token))]; known != nil {
		return known
	}
	if t.hasForgotten(c) || t.room(h.process) != nil { // it may have been forgotten since verify
		return nil
	}
	h.expireAt(now.Add(min(c.Expires.Sub(now), t.options.Lifetime)))
	t.add(h, now)
	return h
}

// find returns a process that is still the one that a ticket was issued to, held by a
// pidfd, or nil. The pidfd is opened first, and is alive last: no other process had the
// pid in between.
func find(p Process) *process {
	pidfd, err := unix.PidfdOpen(int(p.PID), 0)
	if err != nil {
		return nil
	}
	found := &process{pidfd: pidfd, Process: p, holders: map[*Holder]bool{}}
	own, err1 := proc.ReadStat(p.PID)
	uids, err2 := proc.ReadUIDs(p.PID)
	if err1 != nil || err2 != nil || own.Start != p.Start || uids != (proc.UIDs{p.UID, p.UID, p.UID, p.UID}) || found.alive() != nil {
		found.close()
		return nil
	}
	found.name = printable.Line(own.Name)
	return found
}
