// Package ticket binds the use of a profile to one process: a ticket is a bearer
// token that counts only on a connection which that process owns.
//
// Start at [Table.Issue] and [Table.Check]. A ticket is for the parent of the
// process that asks for it: kubectl runs a plugin, the plugin asks, and kubectl
// presents the ticket. Who the parent is, the kernel says. The table keeps a
// pidfd of each such process, so that no other process can come into its tickets
// by getting its pid.
//
// It does not protect against programs of the same user: those can run a plugin
// themselves, and debug each other. Nor can a process be stopped from handing its
// connection to another: it is the one that opened it that is asked about.
//
// A plugin that a shell runs makes a ticket for the shell. When the real parent
// ended before the plugin asked, the kernel has given the plugin another one: init
// (refused), or a process that adopts orphans (PR_SET_CHILD_SUBREAPER), such as a
// user's service manager. That one is refused too unless it is in the plugin's
// own session and started before it, which cannot be told from a real parent. The
// ticket is then of no use to anybody, since the adopter opens no connections.
package ticket

import (
	"time"
)

// Prefix begins every token, so that scanners for leaked secrets know one.
const Prefix = "holdfast-ticket-"

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
	Lifetime        time.Duration // of a ticket; 10 minutes
	PerUID          int           // tickets of one uid; 4096
	Total           int           // 16384
	ProcessesPerUID int           // processes of one uid that hold tickets, a descriptor each; 512
	Processes       int           // 2048
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

// Ticket is what the process gets.
type Ticket struct {
	Token   string
	Expires time.Time
	Process Process // whom it is for
}
