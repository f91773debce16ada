package prompt

import (
	"bytes"
	"fmt"
	"strconv"

	"holdfast/internal/proc"

	"golang.org/x/sys/unix"
)

// A terminal is the controlling terminal of a process, found by its device
// number: no process supplies a path.
type terminal struct {
	path   string
	device uint32 // as /proc/PID/stat has it
}

// The device numbers of terminals (Documentation/admin-guide/devices.txt of the
// kernel).
const (
	majorConsole = 4 // minors from 64 on are serial lines
	majorPTS     = 136
	firstSerial  = 64
)

// split takes a device number apart as the kernel packs it in /proc
// (new_encode_dev in linux/kdev_t.h).
func split(device uint32) (major, minor uint32) {
	return device >> 8 & 0xfff, device&0xff | device>>12&0xfff00
}

// pathOf returns the path of a terminal's device node, and "" for devices of other
// kinds.
func pathOf(device uint32) string {
	major, minor := split(device)
	number := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	switch {
	case major == majorPTS:
		return "/dev/pts/" + number(minor)
	case major == majorConsole && minor >= firstSerial:
		return "/dev/ttyS" + number(minor-firstSerial)
	case major == majorConsole && minor > 0:
		return "/dev/tty" + number(minor)
	}
	return ""
}

// terminalOf returns the terminal of a process on which its user can be asked. The
// terminal must be the user's own, and the process in its foreground: otherwise
// input on it is meant for another program.
func terminalOf(p proc.Stat, uid uint32) (terminal, error) {
	if p.Terminal == 0 {
		return terminal{}, problem("the program that wants the key has no terminal to ask on", nil)
	}
	if p.Foreground != p.Group {
		return terminal{}, problem("the program that wants the key is not in the foreground of its terminal", nil)
	}
	t := terminal{path: pathOf(p.Terminal), device: p.Terminal}
	if t.path == "" {
		major, minor := split(p.Terminal)
		return terminal{}, problem(fmt.Sprintf("prompts cannot be shown on the terminal with device number %d:%d", major, minor), nil)
	}
	fd, err := t.open(uid)
	if err != nil {
		return terminal{}, problem("the terminal of the program that wants the key cannot be used", err)
	}
	defer unix.Close(fd)
	return t, sameInstance(p, t, fd)
}

// open opens the terminal if it is the device that the kernel named, is owned by
// uid, and is not readable or writable by others. It does not become this process's
// controlling terminal.
func (t terminal) open(uid uint32) (int, error) {
	fd, err := unix.Open(t.path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", t.path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("%s: %w", t.path, err)
	}
	if err := t.check(&st, uid); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (t terminal) check(st *unix.Stat_t, uid uint32) error {
	major, minor := split(t.device)
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(major, minor):
		return fmt.Errorf("%s is not device %d:%d", t.path, major, minor)
	case st.Uid != uid:
		return fmt.Errorf("%s belongs to uid %d", t.path, st.Uid)
	case st.Mode&(unix.S_IROTH|unix.S_IWOTH) != 0:
		return fmt.Errorf("%s is open to other users", t.path)
	}
	return nil
}

// sameInstance checks that the process's terminal is the one at fd: a container has
// pseudo-terminals of its own, with the same numbers.
func sameInstance(p proc.Stat, t terminal, fd int) error {
	if major, _ := split(t.device); major != majorPTS {
		return nil
	}
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err != nil {
		return problem("the terminal cannot be used", err)
	}
	text, err := proc.Read(p.PID, "mountinfo")
	if err != nil {
		return problem("the terminal of the program that wants the key cannot be identified", err)
	}
	theirs, found := devptsOf(text)
	ours := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	if !found || theirs != ours {
		return problem("the program that wants the key has its terminal in a container", nil)
	}
	return nil
}

// devptsOf returns the device of the file system on /dev/pts, from
// /proc/PID/mountinfo (proc_pid_mountinfo(5)). Of several the last is on top.
func devptsOf(mountinfo []byte) (device string, found bool) {
	for line := range bytes.Lines(mountinfo) {
		fields := bytes.Fields(line)
		if len(fields) >= 5 && string(fields[4]) == "/dev/pts" {
			device, found = string(fields[2]), true
		}
	}
	return device, found
}

// A tty is an open terminal whose settings are restored after a pinentry.
type tty struct {
	fd     int
	before *unix.Termios
}

// borrow opens the terminal and remembers its state.
func (t terminal) borrow(uid uint32) (*tty, error) {
	fd, err := t.open(uid)
	if err != nil {
		return nil, err
	}
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%s: state: %w", t.path, err)
	}
	return &tty{fd: fd, before: before}, nil
}

// restore turns the terminal's echo on again when a pinentry was killed before it
// could do so. It drops unread input, which may be half a PIN: the shell would show
// it. When the caller has ended, its shell may have turned the echo off to edit a
// line; a shell also changes the input flags, and a pinentry does not.
func (t *tty) restore(callerWaits bool) {
	now, err := unix.IoctlGetTermios(t.fd, unix.TCGETS)
	if err != nil || t.before.Lflag&unix.ECHO == 0 || now.Lflag&unix.ECHO != 0 {
		return
	}
	if callerWaits || now.Iflag == t.before.Iflag {
		_ = unix.IoctlSetTermios(t.fd, unix.TCSETSF, t.before) // the terminal may be gone: nothing is left to restore
	}
}

func (t *tty) close() { unix.Close(t.fd) }
