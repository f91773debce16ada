// Package peer identifies the process at the other end of a Unix socket. It asks
// the kernel alone: user, groups and process are those at the moment of
// connect(2), and nothing that the peer sends plays a part.
//
// Start at [Identifier.FromConn], which is called right after accept and before
// a byte is read, and at [Identity], the plain data that package policy decides
// on. A [Peer] also holds a pidfd, so that [Peer.Alive] answers for this process
// and never for another one that was given its pid later.
//
// The package does not protect against a process that passes its connection on: any
// process that holds the connected descriptor acts as the process that connected.
// Programs of one uid can debug, replace and imitate each other. On kernels before 6.5
// the process is found by its pid, see [Identity.UnitRacy].
package peer

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// OverflowUID is what the kernel reports by default for a uid that is not mapped
// into the user namespace of the process that asks.
const OverflowUID = 65534

// Identity identifies the process that connected. It is plain data, safe to copy, compare field by
// field and log; the slice is never written to after it was made.
type Identity struct {
	UID uint32 // effective uid at connect(2), as this user namespace sees it
	GID uint32 // effective gid, likewise

	// User is the uid's name in /etc/passwd or, failing that, from
	// io.systemd.UserDatabase; empty when the uid has none. See [Names].
	User string

	// Groups are the supplementary groups at connect(2), sorted, each once, without
	// those that are not mapped into this user namespace. GID is among them only if the
	// kernel lists it there too, which it does after initgroups(3).
	Groups []uint32

	PID       int32  // process id, as this pid namespace sees it; never 0
	StartTime uint64 // clock ticks from boot to the process's start (proc_pid_stat(5), field 22); 0 when /proc hides the process

	// Unit is the system unit that the process runs in, such as "kubelet.service".
	// It is empty when there is none, when /proc hides the process, and for every
	// process below user.slice, where users choose the names themselves.
	Unit string

	// UnitRacy is set on kernels without SO_PEERPIDFD (before 6.5): StartTime and
	// Unit are then those of a process with the right pid and uid, which in a
	// narrow race can be a successor of the process that connected.
	UnitRacy bool
}

// ErrGone is in the chain of errors about a process that has ended.
var ErrGone = errors.New("the process has ended")

// ErrUnmapped is in the chain of errors about a peer that is not mapped into this
// process's own user or pid namespace.
var ErrUnmapped = errors.New("the peer is outside this namespace")

// Refused is the error about a peer that cannot be identified for certain. Identity
// holds what the kernel reported, for the audit record.
type Refused struct {
	Identity Identity
	Err      error
}

// Error names the peer and the reason.
func (r *Refused) Error() string {
	return fmt.Sprintf("peer with uid %d, pid %d: %v", r.Identity.UID, r.Identity.PID, r.Err)
}

// Unwrap returns the reason.
func (r *Refused) Unwrap() error { return r.Err }

// A Peer is a process that connected. It is safe for concurrent use.
type Peer struct {
	Identity

	mu    sync.RWMutex // guards pidfd against being closed, and its number reused, while it is polled
	pidfd int          // -1 once closed
}

// An Identifier identifies peers. The zero value is ready for use; one Identifier
// for the life of a service lets it remember user names. It is safe
// for concurrent use.
type Identifier struct {
	Names Names

	overflow overflowUID
}

// FromConn identifies the process that connected c, and reads nothing from c. It
// returns a [Refused] for a uid that does not exist here (the overflow uid), for
// a process that this pid namespace cannot see (pid 0), and, with [ErrGone], for
// one that has ended: no process is left to receive the reply. It also returns one
// when reading /proc fails and hidepid is not the cause. On kernels without
// SO_PEERPIDFD a process that changed its effective uid after connect(2) is
// rejected as well, because it cannot be told from a successor with the same pid.
//
// Everything in Identity is filled in when FromConn returns. It costs some 20
// microseconds, and up to [UserDatabaseTimeout] for a uid that is not in
// /etc/passwd. The caller closes the Peer.
func (i *Identifier) FromConn(c *net.UnixConn) (*Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	var p *Peer
	var perr error
	if err := raw.Control(func(fd uintptr) { p, perr = i.identify(int(fd)) }); err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	if perr != nil {
		return nil, perr
	}
	p.User = i.Names.User(p.UID)
	return p, nil
}

// identify does everything that needs the socket.
func (i *Identifier) identify(fd int) (*Peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("SO_PEERCRED: %w", err)
	}
	id := Identity{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}
	refused := func(err error) (*Peer, error) { return nil, &Refused{Identity: id, Err: err} }

	if cred.Pid <= 0 || i.overflow.is(cred.Uid) {
		return refused(ErrUnmapped)
	}
	if id.Groups, err = peerGroups(fd); err != nil {
		return refused(err)
	}
	pidfd, racy, err := peerPidfd(fd, cred)
	if err != nil {
		return refused(err)
	}
	id.UnitRacy = racy
	err = id.look()
	// This check proves that /proc described the process behind the pidfd: it still
	// has its pid, so no other process had that pid in between.
	if gone := alive(pidfd); gone != nil {
		err = gone
	}
	if err != nil {
		unix.Close(pidfd)
		id.StartTime, id.Unit = 0, ""
		return refused(err)
	}
	return &Peer{Identity: id, pidfd: pidfd}, nil
}

// look fills in what /proc says of the process. It fails when this process cannot
// read /proc, rather than report a peer without a unit: a rule may allow such a peer
// more.
func (id *Identity) look() (err error) {
	if id.StartTime, err = startTime(id.PID); err != nil {
		return err
	}
	id.Unit, err = systemUnit(id.PID)
	return err
}

// Alive returns an error with [ErrGone] in its chain once the process that
// connected has ended. The pidfd names one process for good, even when the
// pid is used again, so nothing else is compared. A process that has replaced its
// program by execve(2) is still the same process.
func (p *Peer) Alive() error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.pidfd < 0 {
		return fmt.Errorf("process %d: %w", p.PID, net.ErrClosed)
	}
	if err := alive(p.pidfd); err != nil {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	return nil
}

// Close closes the pidfd. Alive fails from then on.
func (p *Peer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pidfd < 0 {
		return nil
	}
	fd := p.pidfd
	p.pidfd = -1
	return unix.Close(fd)
}
