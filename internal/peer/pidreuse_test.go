package peer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"holdfast/test/role"

	"golang.org/x/sys/unix"
)

// reusePIDs runs as the first process of a pid namespace, where it may choose
// the next pid. It prints three verdicts: of a peer whose pid was given to a
// successor after accept, of one before accept, and of one before accept whose
// successor runs as another user.
func (p *part) reusePIDs(path string) error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if err := p.listen(path); err != nil {
		return err
	}
	if err := p.reuseAfterAccept(path); err != nil {
		return err
	}
	for _, step := range []string{"setuid=0", "setuid=4321"} {
		peer, err := child("connect="+path, "say=ready", "wait")
		if err != nil {
			return err
		}
		successor, err := takePID(peer, step)
		if err != nil {
			return err
		}
		if err := p.accept(); err != nil {
			return err
		}
		stop(successor)
	}
	return nil
}

func (p *part) reuseAfterAccept(path string) error {
	peer, err := child("connect="+path, "say=ready", "wait")
	if err != nil {
		return err
	}
	conn, err := p.listener.AcceptUnix()
	if err != nil {
		return err
	}
	found, err := new(Identifier).FromConn(conn)
	if err != nil {
		return err
	}
	if err := found.Alive(); err != nil {
		return err
	}
	successor, err := takePID(peer, "setuid=0")
	if err != nil {
		return err
	}
	defer stop(successor)
	return verdictOf(found.Identity, found.Alive()).print()
}

// child starts a process in a role and waits for its word.
func child(steps ...string) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe", steps...)
	cmd.Env = role.Environ("steps")
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	word := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(out, word); err != nil {
		return nil, fmt.Errorf("child said %q: %w", word, err)
	}
	return cmd, nil
}

func stop(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// takePID ends old and starts a process with the same pid. Threads of the
// runtime take pids as well, so it may need more than one try.
func takePID(old *exec.Cmd, step string) (*exec.Cmd, error) {
	pid := old.Process.Pid
	stop(old)
	for range 100 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			return nil, err
		}
		successor, err := child(step, "say=ready", "wait")
		if err != nil {
			return nil, err
		}
		if successor.Process.Pid == pid {
			return successor, nil
		}
		stop(successor)
	}
	return nil, errors.New("the pid did not come round again")
}

func TestPIDReuse(t *testing.T) {
	role.NeedRoot(t)
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	p := start(t, attributes, "reuse="+role.Dir(t)+"/s")
	p.Expect("listening")
	for _, about := range []string{"after accept", "before accept", "before accept, by another user"} {
		if v := p.verdict(); !v.Gone {
			t.Errorf("%s: got %+v, want that the peer is gone", about, v)
		}
	}
}

// Without SO_PEERPIDFD a successor of the same user that takes the pid before
// accept passes for the peer. That is what UnitRacy warns of; one of another
// user is refused, and after accept nothing is racy.
func TestPIDReuseWithoutPeerPidfd(t *testing.T) {
	role.NeedRoot(t)
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	p := start(t, attributes, "filter", "reuse="+role.Dir(t)+"/s")
	p.Expect("listening")
	if v := p.verdict(); !v.Gone {
		t.Errorf("after accept: got %+v, want that the peer is gone", v)
	}
	if v := p.verdict(); v.Error != "" || !v.Identity.UnitRacy {
		t.Errorf("before accept: got %+v, want a racy identity", v)
	}
	if v := p.verdict(); !v.Gone {
		t.Errorf("before accept, by another user: got %+v, want that the peer is gone", v)
	}
}
