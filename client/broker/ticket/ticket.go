// Package ticket binds the use of a profile to one process: a ticket is a bearer
// token that counts only on a connection which that process owns.
//
// Start at [Table.Issue] and [Table.Check]. A ticket is for the parent of the
// process that asks for it: kubectl runs a plugin, the plugin asks, and kubectl
// presents the ticket. Who the parent is, the kernel says.
//
// It does not protect against programs of the same user: those can run a plugin
// themselves.
package ticket

import (
	"net/netip"
	"time"

	"holdfast/agent/peer"
)

// Process is a process for good: its pid may be given to another, the pair of pid
// and start time is not.
type Process struct {
	UID   uint32
	PID   int32
	Start uint64 // clock ticks after boot
	Unit  string // its system unit, as far as known
}

// Options are the limits of a Table. Zero values mean the defaults.
type Options struct {
	Lifetime time.Duration // of a ticket; 10 minutes
	PerUID   int           // tickets of one uid; 4096
	Total    int           // 16384
}

// A Table holds the tickets that were issued. It is safe for concurrent use.
type Table struct{}

// New returns an empty table. Close it.
func New(o Options) *Table { panic("not built") }

// Close forgets every ticket.
func (t *Table) Close() { panic("not built") }

// Ticket is what the process gets.
type Ticket struct {
	Token   string
	Expires time.Time
}

// Parent returns the parent of the process that is connected as p: alive, of the
// same uid, and not a process that merely inherited p. Otherwise it is a denied
// [holdfast/agent/keys.Error] with a hint.
func Parent(p *peer.Peer) (Process, error) { panic("not built") }

// Issue returns a ticket for the parent of p, for one profile. The same process
// gets the same ticket for the same profile until half of its lifetime is over.
func (t *Table) Issue(p *peer.Peer, profile string) (Ticket, error) { panic("not built") }

// Holder is the process that a ticket was issued to.
type Holder struct {
	Process Process
	Profile string
}

// Check returns the holder of a ticket that has not expired and whose process
// lives, and a denied error otherwise.
func (t *Table) Check(token string) (*Holder, error) { panic("not built") }

// Owns returns nil when the holder's process, still alive, owns the client's end
// of the TCP connection between two loopback addresses: the kernel's uid for the
// socket (sock_diag(7)) is the process's, and the socket's inode is among the
// process's descriptors. What cannot be read is refused.
func (h *Holder) Owns(client, server netip.AddrPort) error { panic("not built") }

// Alive returns nil while the holder's process lives and the ticket is not
// forgotten or expired.
func (h *Holder) Alive() error { panic("not built") }

// Forget forgets the tickets of a profile held by a uid.
func (t *Table) Forget(profile string, uid uint32) { panic("not built") }

// ForgetAll forgets the tickets of a profile, or all of them when it is empty.
func (t *Table) ForgetAll(profile string) { panic("not built") }

// Count returns how many tickets a profile has.
func (t *Table) Count(profile string) int { panic("not built") }
