package tpm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"go.uber.org/goleak"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/pace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A reply that a TPM might give to a command without sessions.
func plainReply(size uint32, body ...byte) []byte {
	reply := binary.BigEndian.AppendUint16(nil, uint16(tpm2.TPMSTNoSessions))
	reply = binary.BigEndian.AppendUint32(reply, size)
	reply = binary.BigEndian.AppendUint32(reply, 0)
	return append(reply, body...)
}

func TestReadReply(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes []byte
		ok    bool
	}{
		{"whole", plainReply(12, 1, 2), true},
		{"header only", plainReply(10), true},
		{"empty", nil, false},
		{"half a header", plainReply(10)[:6], false},
		{"cut short", plainReply(13, 1, 2), false},
		{"bytes too many", plainReply(11, 1, 2), false},
		{"size below the header", plainReply(9), false},
		{"size above the limit", plainReply(maxReply + 1), false},
		{"size of 4 GiB", plainReply(0xffffffff), false},
	} {
		var room [maxReply]byte
		n, err := readReply(bytes.NewReader(c.bytes), room[:])
		if (err == nil) != c.ok {
			t.Errorf("%s: got %d, %v", c.name, n, err)
		}
		if c.ok && n != len(c.bytes) {
			t.Errorf("%s: got %d bytes, want %d", c.name, n, len(c.bytes))
		}
	}
}

func TestCheckHeader(t *testing.T) {
	command := []byte{0x80, 1}
	failure := []byte{0x80, 1, 0, 0, 0, 10, 0, 0, 1, 1}
	if err := checkHeader(command, plainReply(11, 1)); err != nil {
		t.Error(err)
	}
	if err := checkHeader(command, failure); err != nil {
		t.Error(err)
	}
	for name, reply := range map[string][]byte{
		"short": failure[:9], "wrong size": plainReply(12, 1), "another tag": append([]byte{0x80, 2}, plainReply(10)[2:]...),
		"an error with a body": append(append(bytes.Clone(failure[:5]), 11), append(failure[6:], 0)...),
	} {
		if checkHeader(command, reply) == nil {
			t.Errorf("%s: the header was taken", name)
		}
	}
}

// socketpair returns a deviceConn and the other end of its descriptor, which
// keeps messages apart as the character device does.
func socketpair(t *testing.T) (deviceConn, *os.File) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	near, far := os.NewFile(uintptr(fds[0]), "device"), os.NewFile(uintptr(fds[1]), "far end")
	t.Cleanup(func() { near.Close(); far.Close() })
	return deviceConn{near}, far
}

func TestDeviceConn(t *testing.T) {
	c, far := socketpair(t)
	want := plainReply(12, 1, 2)
	go func() {
		var command [maxReply]byte
		for range 3 {
			if _, err := far.Read(command[:]); err != nil {
				return
			}
			far.Write(want)
		}
	}()
	var reply [maxReply]byte
	for range 3 {
		n, err := c.Exchange(soon(t), []byte{0x80, 1, 0}, reply[:])
		if err != nil || !bytes.Equal(reply[:n], want) {
			t.Fatalf("got %x, %v, want %x", reply[:n], err, want)
		}
	}
}

func TestDeviceConnEnds(t *testing.T) {
	c, far := socketpair(t)
	var reply [maxReply]byte
	start := time.Now()
	_, err := c.Exchange(within(t, 20*time.Millisecond), []byte{1}, reply[:])
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("silent device: got %v, want a deadline", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := c.Exchange(ctx, []byte{1}, reply[:]); err == nil {
		t.Error("cancelled: got success")
	}
	if took := time.Since(start); pace.Over(t, took, 5*time.Second) {
		t.Errorf("that took %v", took)
	}
	far.Close()
	if _, err := c.Exchange(soon(t), []byte{1}, reply[:]); err == nil {
		t.Error("closed: got success")
	}
}

func TestOpenConfig(t *testing.T) {
	for _, c := range []struct {
		device string
		want   fault.Kind
	}{
		{"swtpm:/x", ""}, {"tpm:/dev/x", ""}, {"", fault.DeviceAbsent},
		{"/dev/tpmrm0", fault.BadRequest}, {"swtpm:", fault.BadRequest}, {"tpm:", fault.BadRequest}, {"simulator:x", fault.BadRequest},
	} {
		if _, err := os.Stat("/dev/tpmrm0"); c.device == "" && err == nil {
			c.want = "" // this machine has a TPM
		}
		_, err := Open(Config{Device: c.device})
		if got := fault.KindOf(err); got != c.want {
			t.Errorf("%q: got %q (%v), want %q", c.device, got, err, c.want)
		}
		if e, ok := fault.AsError(err); ok && e.Hint == "" {
			t.Errorf("%q: no hint", c.device)
		}
	}
}

// TestEnvironmentChoosesNothing: no variable turns a configured TPM into a
// simulator.
func TestEnvironmentChoosesNothing(t *testing.T) {
	for _, name := range []string{"TPM2TOOLS_TCTI", "TPM2OPENSSL_TCTI", "TCTI", "TPM_DEVICE", "SSH_TPM_AGENT_SWTPM", "HOLDFAST_DEVICE"} {
		t.Setenv(name, "swtpm:path=/tmp/x")
	}
	b := open(t, Config{Device: "tpm:/dev/no-such-tpm"})
	wantKind(t, b.Check(soon(t), recorded(t)), fault.DeviceAbsent)
	if s := b.Status(soon(t)); s.Software || s.State != keys.StateAbsent || s.Hint == "" {
		t.Errorf("got %+v, want an absent hardware TPM with a hint", s)
	}
}

// recorded is the material of a key of some other TPM.
func recorded(t testing.TB) keys.Material {
	t.Helper()
	record := aRecord(t)
	r, err := parseRecord(record)
	if err != nil {
		t.Fatal(err)
	}
	k, err := parseKeyFile([]byte(r.Key))
	if err != nil {
		t.Fatal(err)
	}
	return keys.Material{Backend: Backend, Public: k.spki, Device: record}
}

func TestForeignKey(t *testing.T) {
	b, _ := direct(t)
	wantKind(t, signs(soon(t), b, recorded(t), p256), fault.IdentityChanged)
}

func TestAbsentSockets(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead")
	l, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	for _, path := range []string{filepath.Join(dir, "none"), dead} {
		b := open(t, Config{Device: "swtpm:" + path})
		wantKind(t, signs(soon(t), b, recorded(t), p256), fault.DeviceAbsent)
		wantState(t, b, keys.StateAbsent)
	}
}

func TestStatus(t *testing.T) {
	b, device := direct(t)
	s := b.Status(soon(t))
	if s.State != keys.StateReady || !s.Software || s.Device != device.Device() || s.Backend != "tpm" {
		t.Errorf("got %+v, want a ready software TPM", s)
	}
	if !contains(s.Maker, "IBM ") || s.TriesLeft == nil || *s.TriesLeft != 3 {
		t.Errorf("got maker %q, tries %v, want libtpms and swtpm's 3", s.Maker, s.TriesLeft)
	}
	want := []keys.Capability{
		{Algorithm: keys.ES256}, {Algorithm: keys.ES384}, {Algorithm: keys.RS256, RSABits: 2048}, {Algorithm: keys.RS256, RSABits: 3072},
	}
	if len(s.Can) != len(want) || s.Can[3] != want[3] {
		t.Errorf("got %v, want %v", s.Can, want)
	}
	_, err := b.Create(soon(t), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.RS256, RSABits: 4096})
	wantKind(t, err, fault.Unsupported)
	if e, _ := fault.AsError(err); !contains(e.Hint, "RS256 with 3072 bits") {
		t.Errorf("got hint %q, want the list", e.Hint)
	}
}

func TestStatusIsCheap(t *testing.T) {
	b, proxy, _ := behind(t, true)
	b.Status(soon(t))
	proxy.ResetCounts()
	b.Status(soon(t))
	if got := proxy.Total(); got != 1 {
		t.Errorf("got %d commands, want 1: %v", got, proxy.Counts())
	}
}

func TestStatusDoesNotHang(t *testing.T) {
	b, device := direct(t)
	m := create(t, b, es256)
	device.Stop()
	done := make(chan error)
	go func() { done <- signs(within(t, 300*time.Millisecond), b, m, p256) }()
	start := time.Now()
	b.Status(within(t, 50*time.Millisecond))
	if took := time.Since(start); pace.Over(t, took, 250*time.Millisecond) {
		t.Errorf("Status took %v of the 50 ms it had", took)
	}
	<-done
	device.Cont()
}

// TestStatusThatComesLate: a Status call that waited for the owner of a healthy
// device until its time was nearly over sends nothing, and blames no device.
func TestStatusThatComesLate(t *testing.T) {
	b, proxy, _ := behind(t, false)
	wantState(t, b, keys.StateReady)
	proxy.SetDelay(tpm2.TPMCCGetCapability, 300*time.Millisecond) // more than will be left
	proxy.ResetCounts()
	if err := b.acquire(soon(t)); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 700*time.Millisecond)
	got := make(chan keys.Status, 1)
	go func() { got <- b.Status(ctx) }()
	until, _ := ctx.Deadline()
	time.Sleep(time.Until(until.Add(-100 * time.Millisecond))) // the slowness is what is tested
	b.release()
	if s := <-got; s.State != keys.StateReady || s.Maker == "" || s.TriesLeft != nil {
		t.Errorf("got state %q, maker %q, tries %v, want ready, what is known, none", s.State, s.Maker, s.TriesLeft)
	}
	if n := proxy.Total(); n != 0 {
		t.Errorf("got %d commands with 100 ms left, want none", n)
	}
	proxy.SetDelay(tpm2.TPMCCGetCapability, 0)
	if s := wantState(t, b, keys.StateReady); s.TriesLeft == nil {
		t.Error("the next Status does not ask the device")
	}
}

// TestCloseLeavesNothing looks at the device after Close, and closes twice.
func TestCloseLeavesNothing(t *testing.T) {
	for _, managed := range []bool{false, true} {
		b, proxy, device := behind(t, managed)
		m := create(t, b, pinned(false))
		create(t, b, es256)
		unlock(t, b, m, testPIN)
		for range 2 {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		wantKind(t, b.Check(soon(t), m), fault.DeviceAbsent)
		if got := proxy.Counts()[tpm2.TPMCCShutdown]; (got == 1) == managed {
			t.Errorf("managed %v: got %d shutdowns; only a software TPM's power is ours", managed, got)
		}
		proxy.Close()
		if left := device.Handles(); len(left) != 0 {
			t.Errorf("managed %v: the device still holds %x", managed, left)
		}
	}
}

// A fake is a device that answers every command with the same bytes.
type fake struct{ reply []byte }

func (f fake) Exchange(_ context.Context, _, reply []byte) (int, error) {
	return copy(reply, f.reply), nil
}

func (fake) Close() error { return nil }

// FuzzReplies gives every operation a reply of the fuzzer's.
func FuzzReplies(f *testing.F) {
	m := recorded(f)
	seeds := [][]byte{
		plainReply(10), unhex(f, ecdsaReply), {0x80, 1, 0, 0, 0, 10, 0, 0, 1, 1},
		plainReply(27, 0, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 9), // GetCapability of one property
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		b, err := Open(Config{Device: "swtpm:fake", Dial: func(context.Context) (Conn, error) { return fake{reply}, nil }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Create(ctx, es256); err == nil {
			t.Error("one reply to all commands made a key")
		}
		if err := signs(ctx, b, m, p256); err == nil {
			t.Error("one reply to all commands signed")
		}
		b.Status(ctx)
	})
}

// FuzzProperties reads the properties in a reply of the fuzzer's.
func FuzzProperties(f *testing.F) {
	good := plainReply(27, 0, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 2, 0)
	f.Add(good)
	f.Fuzz(func(t *testing.T, reply []byte) {
		p, err := properties(soon(t), &link{conn: fake{reply}}, tpm2.TPMPTPermanent, tpm2.TPMPTLockoutRecovery)
		if err == nil {
			o := lockoutFrom(p)
			_, _, _ = o.left(), o.reserve(), makerFrom(p)
		}
		if bytes.Equal(reply, good) && (err != nil || !lockoutFrom(p).locked) {
			t.Errorf("the seed: got %v, %v, want a locked device", p, err)
		}
	})
}
