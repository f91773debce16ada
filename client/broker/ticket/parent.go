package ticket

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"holdfast/internal/fault"
	"holdfast/internal/peer"
	"holdfast/internal/printable"
	"holdfast/internal/proc"
)

// directly is the hint when the program that ran the plugin is not the program that
// connects.
const directly = "the program that connects to the cluster has to run the plugin itself: no shell, sudo or wrapper in between, and not in the background"

// denied returns an error for the caller.
func denied(hint, format string, values ...any) error {
	return &fault.Error{Kind: fault.Denied, Message: fmt.Sprintf(format, values...), Hint: hint}
}

// Parent returns the parent of the process that is connected as p: alive, of the
// same uid, and not a process that merely adopted p, as far as that can be detected
// (see the package comment). Otherwise it returns a denied [fault.Error] with a hint.
func Parent(p *peer.Peer) (Process, error) {
	parent, err := parentOf(p)
	if err != nil {
		return Process{}, err
	}
	parent.close()
	return parent.Process, nil
}

// parentOf finds the parent of p and holds it by a pidfd. The order of the steps
// makes it certain: it opens the pidfd first, then reads everything, then checks that
// p is alive and still has this parent, and last that the parent is alive. So no
// other process had the parent's pid in the meantime.
func parentOf(p *peer.Peer) (*process, error) {
	child, err := childOf(p)
	if err != nil {
		return nil, err
	}
	if err := notInit(child); err != nil {
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(int(child.Parent), 0)
	if err != nil {
		return nil, unreadable("the plugin's parent", child.Parent, err)
	}
	parent := &process{pidfd: pidfd, Process: Process{UID: p.UID, PID: child.Parent}, holders: map[*Holder]bool{}}
	if err := parent.inspect(p, child); err != nil {
		parent.close()
		return nil, err
	}
	return parent, nil
}

// childOf returns what /proc says of the plugin, which it checks to be alive.
func childOf(p *peer.Peer) (proc.Stat, error) {
	child, err := proc.ReadStat(p.PID)
	if err != nil {
		return proc.Stat{}, unreadable("the plugin", p.PID, err)
	}
	if err := p.Alive(); err != nil {
		return proc.Stat{}, unreadable("the plugin", p.PID, err)
	}
	if child.Start != p.StartTime {
		return proc.Stat{}, denied("mount /proc without hidepid, or let the broker read it",
			"the start time of the plugin (process %d) cannot be read", p.PID)
	}
	return child, nil
}

func notInit(child proc.Stat) error {
	switch {
	case child.Parent <= 0:
		return denied("the plugin and its parent have to be in the broker's pid namespace",
			"the plugin's parent is in another pid namespace")
	case child.Parent == 1:
		return denied(directly, "the plugin's parent has ended, or is init")
	}
	return nil
}

// inspect fills in what /proc says of the parent and rejects a process that cannot
// have run the plugin.
func (p *process) inspect(plugin *peer.Peer, child proc.Stat) error {
	own, err := proc.ReadStat(p.PID)
	if err != nil {
		return unreadable("the plugin's parent", p.PID, err)
	}
	uids, err := proc.ReadUIDs(p.PID)
	if err != nil {
		return unreadable("the plugin's parent", p.PID, err)
	}
	p.name, p.Start = printable.Line(own.Name), own.Start
	p.Unit = sharedUnit(plugin, p.PID)
	if err := p.fits(own, child, uids); err != nil {
		return err
	}
	again, err := childOf(plugin)
	if err != nil {
		return err
	}
	if again.Parent != p.PID {
		return denied(directly, "the plugin's parent ended while the plugin asked")
	}
	if err := p.alive(); err != nil {
		return unreadable("the plugin's parent", p.PID, err)
	}
	return nil
}

// fits rejects a parent that has not run the plugin, or has run it for another user.
func (p *process) fits(own, child proc.Stat, uids proc.UIDs) error {
	switch {
	case own.Flags&proc.KernelThread != 0:
		return denied(directly, "the plugin's parent is the kernel")
	case own.Start > child.Start:
		return denied(directly, "the plugin's parent, %d %s, started after it", p.PID, p.name)
	case own.Session != child.Session:
		return denied(directly, "the plugin's parent, %d %s, is in another session: it has adopted the plugin", p.PID, p.name)
	}
	for _, uid := range uids {
		if uid != p.UID {
			return denied("run the program and the plugin as one user, not through sudo or a set-user-ID program",
				"the plugin runs as uid %d, its parent, %d %s, as uid %d", p.UID, p.PID, p.name, uid)
		}
	}
	return nil
}

// sharedUnit returns the plugin's unit when the parent is in the same control
// group, and none otherwise.
func sharedUnit(plugin *peer.Peer, parent int32) string {
	if plugin.Unit == "" {
		return ""
	}
	theirs, err1 := proc.Read(plugin.PID, "cgroup")
	its, err2 := proc.Read(parent, "cgroup")
	if err1 != nil || err2 != nil || !bytes.Equal(theirs, its) {
		return ""
	}
	return plugin.Unit
}

// unreadable returns the error for a process that cannot be identified: it has ended,
// or /proc does not show it.
func unreadable(who string, pid int32, err error) error {
	for _, gone := range []error{peer.ErrGone, os.ErrNotExist, unix.ESRCH} {
		if errors.Is(err, gone) {
			return &fault.Error{Kind: fault.Denied, Message: fmt.Sprintf("%s (process %d) has ended", who, pid), Hint: directly, Err: err}
		}
	}
	return &fault.Error{
		Kind: fault.Denied, Message: fmt.Sprintf("%s (process %d) cannot be identified", who, pid),
		Hint: "the broker has to be able to read /proc/" + fmt.Sprint(pid), Err: err,
	}
}
