package tpm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/pace"
)

func TestExplain(t *testing.T) {
	lost := func(err, ended error) error { return fmt.Errorf("TPM2_Sign: %w", &lostError{err: err, ended: ended}) }
	code := func(rc tpm2.TPMRC) error { return fmt.Errorf("TPM2_Sign: %w", rc) }
	for _, c := range []struct {
		name  string
		err   error
		kind  fault.Kind
		state keys.State // what note makes of it
	}{
		{"cut connection", lost(io.EOF, nil), fault.DeviceAbsent, keys.StateAbsent},
		{"malformed", lost(errMalformed, nil), fault.DeviceFailed, keys.StateFailed},
		{"deadline in flight", lost(os.ErrDeadlineExceeded, context.DeadlineExceeded), fault.Deadline, keys.StateWedged},
		{"cancelled in flight", lost(os.ErrDeadlineExceeded, context.Canceled), fault.Deadline, keys.StateReady},
		{"deadline before", context.DeadlineExceeded, fault.Deadline, keys.StateReady},
		{"kept retrying", &retryError{rc: tpm2.TPMRCTesting, err: context.DeadlineExceeded}, fault.Busy, keys.StateReady},
		{"no such file", &dialError{os.ErrNotExist}, fault.DeviceAbsent, keys.StateAbsent},
		{"no permission", &dialError{os.ErrPermission}, fault.DeviceAbsent, keys.StateAbsent},
		{"not taken in time", &dialError{context.DeadlineExceeded}, fault.Deadline, keys.StateWedged},
		{"failure mode", code(tpm2.TPMRCFailure), fault.DeviceFailed, keys.StateFailed},
		{"lockout", code(tpm2.TPMRCLockout), fault.DeviceLocked, keys.StateLocked},
		{"objects", code(tpm2.TPMRCObjectMemory), fault.Busy, keys.StateBusy},
		{"sessions", code(tpm2.TPMRCSessionHandles), fault.Busy, keys.StateBusy},
		{"not started", code(tpm2.TPMRCInitialize), fault.DeviceFailed, keys.StateFailed},
		{"anything else", code(tpm2.TPMRCSensitive), fault.Internal, keys.StateReady},
		{"random code", code(0xdeadbeef), fault.Internal, keys.StateReady},
		{"a defect", errors.New("x"), fault.Internal, keys.StateReady},
		{"named already", &fault.Error{Kind: fault.PINRequired}, fault.PINRequired, keys.StateReady},
	} {
		b := open(t, Config{Device: "swtpm:/nowhere"})
		got := b.explain(c.err)
		b.note(got)
		if fault.KindOf(got) != c.kind || b.state() != c.state {
			t.Errorf("%s: got %q and state %q, want %q and %q", c.name, fault.KindOf(got), b.state(), c.kind, c.state)
		}
		if !errors.Is(got, c.err) {
			t.Errorf("%s: the cause is lost", c.name)
		}
		b.note(nil)
		if now := b.state(); now != keys.StateReady && now != keys.StateLocked {
			t.Errorf("%s: got state %q after a success", c.name, now)
		}
	}
	if (&TPM{}).explain(nil) != nil {
		t.Error("no error was explained")
	}
}

func TestSinceIsKept(t *testing.T) {
	b := open(t, Config{Device: "swtpm:/nowhere"})
	b.enter(health{state: keys.StateAbsent, reason: "first"})
	first := b.health.since
	b.enter(health{state: keys.StateAbsent, reason: "second"})
	if b.health.since != first || b.health.reason != "second" {
		t.Errorf("got %+v, want the first time and the last reason", b.health)
	}
	b.leave(keys.StateBusy)
	if b.state() != keys.StateAbsent {
		t.Error("leaving another state changed this one")
	}
}

func TestHints(t *testing.T) {
	if got := hintFor(&os.PathError{Op: "open", Path: "/dev/tpmrm0", Err: syscall.EACCES}); !contains(got, "tss") {
		t.Errorf("got %q, want the group's name", got)
	}
	if got := hintFor(syscall.ENOENT); got != hintOpen {
		t.Errorf("got %q, want what to do without a TPM", got)
	}
}

func TestVanished(t *testing.T) {
	for rc, want := range map[tpm2.TPMRC]bool{
		tpm2.TPMRCReferenceH0: true, tpm2.TPMRCReferenceH6: true, tpm2.TPMRCHandle: true, tpm2.TPMRCHandle + 0x100: true,
		tpm2.TPMRCReferenceS0: false, tpm2.TPMRCSuccess: false, tpm2.TPMRCIntegrity: false,
	} {
		if got := vanished(fmt.Errorf("x: %w", rc)); got != want {
			t.Errorf("%#x: got %v, want %v", uint32(rc), got, want)
		}
	}
	if !sessionVanished(tpm2.TPMRCReferenceS0) || sessionVanished(tpm2.TPMRCReferenceH0) {
		t.Error("sessions and handles are mixed up")
	}
	if !wrongAuth(tpm2.TPMRCAuthFail+0x900) || !wrongAuth(tpm2.TPMRCBadAuth+0x900) || wrongAuth(tpm2.TPMRCLockout) {
		t.Error("a wrong authorisation is not told apart")
	}
}

func TestStep(t *testing.T) {
	var l link
	if step("x", &l, nil) != nil || l.lost {
		t.Error("success lost the link")
	}
	for _, err := range []error{tpm2.TPMRCHandle, &lostError{err: io.EOF}, &retryError{}, context.Canceled, context.DeadlineExceeded} {
		if got := step("x", &l, err); !errors.Is(got, err) || l.lost {
			t.Errorf("%v: got %v, lost %v", err, got, l.lost)
		}
	}
	if got := step("x", &l, errors.New("cannot unmarshal")); !errors.Is(got, errMalformed) || !l.lost {
		t.Errorf("an unreadable reply: got %v, lost %v", got, l.lost)
	}
}

func TestPause(t *testing.T) {
	for try := range 3 {
		start := time.Now()
		if err := pause(context.Background(), try); err != nil {
			t.Fatal(err)
		}
		if took, least := time.Since(start), firstPause<<try/2; took < least {
			t.Errorf("try %d: got %v, want at least %v", try, took, least)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	start := time.Now()
	if pause(ended, 1000) == nil || pace.Over(t, time.Since(start), time.Second) {
		t.Error("the pause outlives its caller")
	}
}

// A scripted Conn answers with one reply after the other and counts.
type scripted struct {
	replies [][]byte
	sent    int
}

func (s *scripted) Exchange(_ context.Context, _, reply []byte) (int, error) {
	if s.sent >= len(s.replies) {
		return 0, io.EOF
	}
	s.sent++
	return copy(reply, s.replies[s.sent-1]), nil
}

func (*scripted) Close() error { return nil }

func refusal(rc tpm2.TPMRC) []byte {
	return []byte{0x80, 1, 0, 0, 0, 10, byte(rc >> 24), byte(rc >> 16), byte(rc >> 8), byte(rc)}
}

func TestSendRepeats(t *testing.T) {
	good := plainReply(10)
	for _, c := range []struct {
		name    string
		replies [][]byte
		sent    int
		ok      bool
	}{
		{"at once", [][]byte{good}, 1, true},
		{"after three", [][]byte{refusal(tpm2.TPMRCRetry), refusal(tpm2.TPMRCYielded), refusal(tpm2.TPMRCTesting), good}, 4, true},
		{"a refusal is an answer", [][]byte{refusal(tpm2.TPMRCHandle), good}, 1, true},
		{"cut off", [][]byte{refusal(tpm2.TPMRCRetry)}, 1, false},
		{"malformed", [][]byte{good[:9], good}, 1, false},
	} {
		conn := &scripted{replies: c.replies}
		l := &link{conn: conn}
		_, err := l.send(soon(t), []byte{0x80, 1})
		if (err == nil) != c.ok || conn.sent != c.sent || l.lost == c.ok {
			t.Errorf("%s: got %v after %d commands, lost %v; want %d", c.name, err, conn.sent, l.lost, c.sent)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	conn := &scripted{replies: [][]byte{good}}
	if _, err := (&link{conn: conn}).send(ended, []byte{0x80, 1}); err == nil || conn.sent != 0 {
		t.Errorf("got %v after %d commands, want none for a caller who has gone", err, conn.sent)
	}
}
