package ticket

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/peer"
)

// sweepEvery is how long a ticket may stay in the table after its process has ended.
// It is not valid in that time: every use checks the pidfd.
const sweepEvery = 15 * time.Second

// A Table holds the tickets that were issued. It is safe for concurrent use.
//
// It does not store tokens. A token is the ticket's claims and their MAC under the
// table's key (HMAC-SHA-256), which is computed when the token is handed out. The token
// is looked up by its SHA-256: the time of a comparison reveals something about the hash
// only.
type Table struct {
	options Options
	id      string // of this table, in its tickets

	mu        sync.Mutex // guards the fields below
	holders   map[[sha256.Size]byte]*Holder
	processes map[int32]*process // by pid
	timer     *time.Timer        // runs while there are tickets
	closed    bool
	key       []byte
	kept      bool               // an earlier table may have had the key
	dropped   map[forgotten]bool // whose tickets of earlier tables are not accepted
}

// New returns an empty table. Close it.
func New(o Options) *Table {
	return &Table{
		options: o.withDefaults(), id: rand.Text(), key: []byte(rand.Text()),
		holders: map[[sha256.Size]byte]*Holder{}, processes: map[int32]*process{}, dropped: map[forgotten]bool{},
	}
}

// Close forgets every ticket. The table issues none afterwards.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.forget(func(*Holder) bool { return true })
}

// Issue returns a ticket for the parent of p, for one profile. The same process
// gets the same ticket for the same profile until half of its lifetime is over.
// Errors are [fault.Error]: denied as for [Parent], or busy when there are too many
// tickets or too many processes that hold some.
func (t *Table) Issue(p *peer.Peer, profile string) (Ticket, error) {
	fresh, err := parentOf(p)
	if err != nil {
		return Ticket{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() {
		if len(fresh.holders) == 0 {
			fresh.close()
		}
	}()
	now := time.Now()
	parent := t.known(fresh)
	if h := parent.recent(profile, now, t.options.Lifetime/2); h != nil {
		return t.ticket(h), nil
	}
	if t.full(parent) {
		t.sweep(now)
		parent = t.known(fresh)
	}
	if err := t.room(parent); err != nil {
		return Ticket{}, err
	}
	h := &Holder{Process: fresh.Process, Profile: profile, process: parent}
	h.expireAt(now.Add(t.options.Lifetime))
	h.claims = t.claims(h, p.Identity)
	t.add(h, now)
	return t.ticket(h), nil
}

// known returns the entry of the table for the process fresh, or fresh itself. An
// entry under the same pid whose process has ended, or changed its user, is dropped.
// The caller holds the lock.
func (t *Table) known(fresh *process) *process {
	p := t.processes[fresh.PID]
	if p == nil {
		return fresh
	}
	if p.alive() != nil || p.UID != fresh.UID {
		t.drop(p)
		return fresh
	}
	return p
}

// recent returns a ticket of the process for a profile that stays valid for at least
// the time left.
func (p *process) recent(profile string, now time.Time, left time.Duration) *Holder {
	for h := range p.holders {
		if h.Profile == profile && !h.expired(now.Add(left)) {
			return h
		}
	}
	return nil
}

// add enters a holder of a ticket. The caller holds the lock.
func (t *Table) add(h *Holder, now time.Time) {
	h.hash = sha256.Sum256([]byte(t.ticket(h).Token))
	t.holders[h.hash] = h
	t.processes[h.process.PID] = h.process
	h.process.holders[h] = true
	t.arm(now)
}

// ticket returns the holder's ticket.
func (t *Table) ticket(h *Holder) Ticket {
	return Ticket{Token: Prefix + h.claims + "." + t.mac(h.claims), Expires: h.wall, Process: h.Process}
}

// room returns an error when there is no room for one more ticket of p. The caller holds the
// lock.
func (t *Table) room(p *process) error {
	if t.closed {
		return denied("try again: the broker is stopping or starting", "the broker issues no more tickets")
	}
	if !t.full(p) {
		return nil
	}
	return &fault.Error{
		Kind: fault.Busy, Message: "there are too many tickets, or too many processes that hold some",
		Hint: "end programs of this user, or wait until tickets expire", RetryAfter: sweepEvery,
	}
}

func (t *Table) full(p *process) bool {
	tickets, processes := 0, 0
	for _, other := range t.processes {
		if other.UID == p.UID {
			tickets += len(other.holders)
			processes++
		}
	}
	if len(t.holders) >= t.options.Total || tickets >= t.options.PerUID {
		return true
	}
	return len(p.holders) == 0 && (len(t.processes) >= t.options.Processes || processes >= t.options.ProcessesPerUID)
}

// Check returns the holder of a ticket that has not expired and whose process
// lives, and a denied error otherwise. The same ticket has the same holder.
func (t *Table) Check(token string) (*Holder, error) {
	t.mu.Lock()
	h := t.holders[sha256.Sum256([]byte(token))]
	t.mu.Unlock()
	if h == nil {
		if h = t.restore(token); h == nil {
			return nil, denied(runAgain, "this broker did not issue the ticket, or it has expired")
		}
	}
	if err := h.Alive(); err != nil {
		return nil, err
	}
	return h, nil
}

// Forget forgets the tickets of a profile held by a uid.
func (t *Table) Forget(profile string, uid uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped[forgotten{profile, uid, false}] = true
	t.forget(func(h *Holder) bool { return h.Profile == profile && h.Process.UID == uid })
}

// ForgetAll forgets the tickets of a profile, or all of them when it is empty.
func (t *Table) ForgetAll(profile string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped[forgotten{profile, 0, true}] = true
	t.forget(func(h *Holder) bool { return profile == "" || h.Profile == profile })
}

// Lives reports whether a process has a ticket and had not ended at the last sweep,
// at most 15 s ago.
func (t *Table) Lives(p Process) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.processes[p.PID]
	return known != nil && known.UID == p.UID && known.Start == p.Start
}

// Holds reports whether a process has a ticket for a profile.
func (t *Table) Holds(p Process, profile string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.processes[p.PID]
	return known != nil && known.UID == p.UID && known.Start == p.Start && known.recent(profile, time.Now(), 0) != nil
}

// Has reports whether a uid has a ticket for any profile.
func (t *Table) Has(uid uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.processes {
		if p.UID == uid {
			return true
		}
	}
	return false
}

// Count returns how many tickets a profile has.
func (t *Table) Count(profile string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, h := range t.holders {
		if h.Profile == profile {
			n++
		}
	}
	return n
}
