package prompt

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/fault"
	"holdfast/internal/proc"
)

// TestAnswerTimeout: a prompt without an answer ends by itself.
func TestAnswerTimeout(t *testing.T) {
	pinentry := play(t, "pinentry", script{Replies: gnome, Hang: "GETPIN"})
	p := onDesktop(pinentry.dir)
	if p.limits.answer != AnswerTimeout {
		t.Errorf("the timeout is %v", p.limits.answer)
	}
	p.limits.answer = 2 * time.Second // in which it has started
	a := within(t, asking(t.Context(), p, daemon(t)))
	wantKind(t, a.err, fault.PINRequired, "not answered in time")
	if !errors.Is(a.err, ErrLate) {
		t.Errorf("%v is not late", a.err)
	}
	if err := gone(pinentry.number("PID")); err != nil {
		t.Error(err)
	}
}

// TestSlowStart: a pinentry that does not get as far as its prompt is given up for
// the next one.
func TestSlowStart(t *testing.T) {
	mute := play(t, "pinentry", script{Hang: "SETDESC", Replies: gnome})
	working := play(t, "pinentry-qt", script{Replies: gnome})
	p := onDesktop(mute.dir, working.dir)
	p.limits.start = 3 * time.Second // enough for the one that works
	a := within(t, asking(t.Context(), p, daemon(t)))
	if string(a.pin) != "123456" {
		t.Errorf("got %q, %v", a.pin, a.err)
	}
	if err := gone(mute.number("PID")); err != nil {
		t.Error(err)
	}
}

// TestTimeLeft: the pinentry is told of less time than there is, so that it is not
// killed in the middle.
func TestTimeLeft(t *testing.T) {
	for _, test := range []struct {
		deadline time.Duration
		want     int
	}{{0, 54}, {time.Hour, 54}, {30*time.Second + 500*time.Millisecond, 29}, {2 * time.Second, 1}, {time.Millisecond, 1}} {
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if test.deadline != 0 {
			ctx, cancel = context.WithTimeout(ctx, test.deadline)
		}
		if got := seconds(ctx, AnswerTimeout); got != test.want {
			t.Errorf("with %v: %d s, want %d", test.deadline, got, test.want)
		}
		cancel()
	}
}

// TestCallerEnds: a prompt goes when the process that wants the key has gone,
// although whoever reported it still waits.
func TestCallerEnds(t *testing.T) {
	pinentry := play(t, "pinentry", script{Replies: gnome, Hang: "CONFIRM"})
	s := daemon(t)
	refused := make(chan error, 1)
	go func() { refused <- onDesktop(pinentry.dir).Confirm(t.Context(), s) }()
	pid := pinentry.number("PID")
	if err := unix.Kill(int(s.PID), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-refused:
		wantKind(t, err, fault.ConfirmationRequired, "no longer waits")
	case <-time.After(20 * time.Second):
		t.Fatal("the prompt stays")
	}
	if err := gone(pid); err != nil {
		t.Error(err)
	}
}

// TestTerminalTaken: a prompt goes when another job gets the terminal, since what
// is typed then is not for it.
func TestTerminalTaken(t *testing.T) {
	shell := newPane(t, "shell")
	job := childOf(t, shell.pid)
	s := subject(t, job)
	c := asking(t.Context(), bare(t, "pinentry-tty"), s)
	shell.prompted()
	if err := unix.Kill(int(shell.pid), unix.SIGUSR1); err != nil { // it takes the terminal back
		t.Fatal(err)
	}
	wantKind(t, within(t, c).err, fault.PINRequired, "no longer waits")
	if _, err := look(job); err != nil {
		t.Errorf("the job: %v", err)
	}
	if !shell.Echo() {
		t.Error("the terminal has lost its echo")
	}
}

// TestTypedAheadIsDropped: of a PIN that was half typed nothing is left for the
// shell to show.
func TestTypedAheadIsDropped(t *testing.T) {
	pane := newPane(t, "wait")
	where := terminal{path: pane.tty, device: mustLook(t, pane.pid).Terminal}
	borrowed, err := where.borrow(0)
	if err != nil {
		t.Fatal(err)
	}
	defer borrowed.close()
	quiet := *borrowed.before
	quiet.Lflag &^= unix.ECHO | unix.ICANON
	if err := unix.IoctlSetTermios(borrowed.fd, unix.TCSETS, &quiet); err != nil {
		t.Fatal(err)
	}
	pane.Press("-l", "1234")
	eventually(t, func() error {
		n, err := unix.IoctlGetInt(borrowed.fd, unix.TIOCINQ)
		if err == nil && n != 4 {
			err = errors.New("not typed yet")
		}
		return err
	})
	borrowed.restore(true)
	if n, err := unix.IoctlGetInt(borrowed.fd, unix.TIOCINQ); err != nil || n != 0 {
		t.Errorf("%d bytes are left: %v", n, err)
	}
	if !pane.Echo() {
		t.Error("no echo")
	}
}

// TestLineEditorKeepsItsState: the shell of a caller that has ended edits a line
// without echo, which is not to be undone.
func TestLineEditorKeepsItsState(t *testing.T) {
	pane := newPane(t, "wait")
	where := terminal{path: pane.tty, device: mustLook(t, pane.pid).Terminal}
	borrowed, err := where.borrow(0)
	if err != nil {
		t.Fatal(err)
	}
	defer borrowed.close()
	editing := *borrowed.before
	editing.Lflag &^= unix.ECHO | unix.ICANON
	editing.Iflag &^= unix.ICRNL
	if err := unix.IoctlSetTermios(borrowed.fd, unix.TCSETS, &editing); err != nil {
		t.Fatal(err)
	}
	if borrowed.restore(false); pane.Echo() {
		t.Error("the line editor's state is gone")
	}
	if borrowed.restore(true); !pane.Echo() {
		t.Error("a pinentry's state is still there")
	}
}

func mustLook(t *testing.T, pid int32) proc.Stat {
	t.Helper()
	p, err := look(pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
