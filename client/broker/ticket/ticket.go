// Package ticket binds the use of a profile to one process: a ticket is a bearer
// token that is valid only on connections opened by that process.
//
// Start at [Table.Issue] and [Table.Check]. A ticket is issued to the
// parent of the process that asks for it: kubectl runs a plugin, the plugin asks,
// and kubectl presents the ticket. The kernel names the parent. The table keeps a
// pidfd of each such process, so that a later process with the same pid cannot use
// its tickets.
//
// A broker that is restarted accepts the tickets of the one before it, so that a
// controller does not notice: see [Table.UseKey].
//
// It does not protect against programs of the same user: those can run a plugin
// themselves, and debug each other. A process can pass its open connection to
// another process: the check is about the process that opened it.
//
// The ticket of a plugin that a shell runs is the shell's. When the real parent ended
// before the plugin asked, the kernel has given the plugin another parent: init,
// which is rejected, or a process that adopts orphans (PR_SET_CHILD_SUBREAPER), such
// as a user's service manager. An adopter is rejected too, unless it is in the
// plugin's session and started before the plugin: such an adopter cannot be told
// from a real parent. Its ticket is useless, because an adopter opens no connections.
package ticket

import (
	"time"

	"holdfast/internal/peer"
)

// Prefix begins every token, so that scanners for leaked secrets recognise it.
const Prefix = "holdfast-ticket-"

// Process identifies a process for good: its pid may be used again, the pair of pid
// and start time is not.
type Process struct {
	UID   uint32
	PID   int32
	Start uint64 // clock ticks after boot
	Unit  string // its system unit, where known
}

// Options are the limits of a Table. Zero values mean the defaults.
type Options struct {
	Lifetime        time.Duration // of a ticket; 10 minutes
	PerUID          int           // tickets of one uid; 4096
	Total           int           // 16384
	ProcessesPerUID int           // processes of one uid that hold tickets, a descriptor each; 512
	Processes       int           // 2048

	// Restored is called for a ticket of an earlier table that is accepted, with the
	// identity of the plugin that it was issued to. It may be nil.
	Restored func(p Process, plugin peer.Identity, until time.Time)
}

// withDefaults returns o with the defaults in place of zero values.
func (o Options) withDefaults() Options {
	number := func(n *int, standard int) {
		if *n <= 0 {
			*n = standard
		}
	}
	if o.Lifetime <= 0 {
		o.Lifetime = 10 * time.Minute
	}
	number(&o.PerUID, 4096)
	number(&o.Total, 16384)
	number(&o.ProcessesPerUID, 512)
	number(&o.Processes, 2048)
	return o
}

// Ticket is a ticket as it is handed out.
type Ticket struct {
	Token   string
	Expires time.Time
	Process Process // the process that may use it
}
