package faults_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/varlink"
	"holdfast/test/daemon"
	"holdfast/test/swtpm"
)

// Figures of the project's goals: G9 for restarts, G10 for the rest.
const (
	restarts      = 20
	recoveryLimit = time.Second // and [slack]
	callLimit     = 2 * time.Second
)

// transient is what a caller may see while a TPM goes away and comes back.
var transient = []string{string(fault.DeviceAbsent), string(fault.DeviceWedged), string(fault.Deadline), string(fault.Busy)}

// setup is an agent on a TPM of its own, with one key.
func setup(t *testing.T) (*swtpm.TPM, *daemon.Agent, *client.Client, agentwire.Key) {
	t.Helper()
	tpm := swtpm.Start(t)
	a := daemon.Start(t, daemon.Options{Device: tpm.Device()})
	c := connect(t, a)
	return tpm, a, c, create(t, c, agentwire.CreateKeyParameters{Name: "k"})
}

// state returns the device's state as GetStatus reports it.
func state(t *testing.T, c *client.Client) keys.State {
	t.Helper()
	s, err := c.Status(within(t, callLimit+time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Devices) != 1 {
		t.Fatalf("%d devices, want 1", len(s.Devices))
	}
	return keys.State(s.Devices[0].State)
}

// waitState waits until the device is in a state and returns how long it took.
func waitState(t *testing.T, c *client.Client, want keys.State, limit time.Duration) time.Duration {
	t.Helper()
	return poll(t, "state "+string(want), limit, func() bool { return state(t, c) == want })
}

// recovers waits until a signature comes that was asked for from now on.
func recovers(t *testing.T, l *load) time.Duration {
	t.Helper()
	now := time.Now()
	return poll(t, "recovery after "+l.account(), failed, func() bool { return l.signedSince(now) })
}

// TestTPMRestarts cuts the TPM's power under load.
func TestTPMRestarts(t *testing.T) {
	t.Parallel()
	tpm, a, c, k := setup(t)
	limit := recoveryLimit + slack(t, func() error { return sign(within(t, failed), c, k) })
	l := startLoad(t, a, k, 4, callLimit)
	var cut cutter
	t.Cleanup(func() { cut.end() })
	var worst, sum time.Duration
	for range restarts {
		before := l.total()
		poll(t, "signatures between two power cuts", failed, func() bool { return l.total() > before })
		cut.power(t, tpm, tpm.Dir)
		took := recovers(t, l)
		worst, sum = max(worst, took), sum+took
	}
	l.check(t, transient...)
	if worst > limit {
		t.Errorf("the worst recovery took %v, want at most %v", worst, limit)
	}
	if got := state(t, c); got != keys.StateReady {
		t.Errorf("state %s at the end", got)
	}
	t.Logf("%d restarts: recovery mean %v, worst %v; %s", restarts, sum/restarts, worst, l.account())
}

// A cutter cuts a TPM's power again and again.
type cutter struct{ cmd *exec.Cmd }

// power kills the TPM and starts the one whose state is in dir behind the same
// socket. Unlike [swtpm.TPM.RestartIn] it does not wait for an answer: the agent
// is the one to get the first.
func (c *cutter) power(t *testing.T, tpm *swtpm.TPM, dir string) {
	t.Helper()
	tpm.Kill()
	c.end()
	for _, path := range []string{tpm.Path, tpm.Path + ".ctrl"} {
		_ = os.Remove(path) // what a killed swtpm leaves
	}
	c.cmd = exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+dir, "--server", "type=unixio,path="+tpm.Path,
		"--ctrl", "type=unixio,path="+tpm.Path+".ctrl", "--flags", "not-need-init,startup-clear")
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (c *cutter) end() {
	if c.cmd != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

// TestTPMStops wedges the TPM: it takes commands and gives no answers.
func TestTPMStops(t *testing.T) {
	t.Parallel()
	tpm, a, c, k := setup(t)
	limit := recoveryLimit + slack(t, func() error { return sign(within(t, failed), c, k) })
	l := startLoad(t, a, k, 2, callLimit)
	poll(t, "a signature", failed, func() bool { return l.total() > 0 })
	tpm.Stop()
	named := poll(t, "a failure with a name", failed, func() bool {
		return l.seen(fault.DeviceWedged) || l.seen(fault.Deadline)
	})
	waitState(t, c, keys.StateWedged, failed)
	if ks, err := c.Keys(within(t, time.Second), false); err != nil || len(ks) != 1 {
		t.Errorf("a wedged device keeps the agent from listing keys: %v, %v", ks, err)
	}
	tpm.Cont()
	took := recovers(t, l)
	ready := waitState(t, c, keys.StateReady, failed)
	l.check(t, transient...)
	if took > limit {
		t.Errorf("recovery took %v, want at most %v", took, limit)
	}
	t.Logf("named after %v (calls wait %v); signing again after %v, ready after %v more; %s", named, callLimit, took, ready, l.account())
}

// TestTPMResets power-cycles the TPM behind the agent's connection, so that it
// wants TPM2_Startup and has forgotten every loaded key.
func TestTPMResets(t *testing.T) {
	t.Parallel()
	tpm, a, c, k := setup(t)
	limit := recoveryLimit + slack(t, func() error { return sign(within(t, failed), c, k) })
	l := startLoad(t, a, k, 2, callLimit)
	var worst time.Duration
	for range 5 {
		before := l.total()
		poll(t, "signatures between two resets", failed, func() bool { return l.total() > before })
		tpm.Reset()
		worst = max(worst, recovers(t, l))
	}
	l.check(t, transient...)
	if worst > limit {
		t.Errorf("the worst recovery took %v, want at most %v", worst, limit)
	}
	t.Logf("5 resets: worst recovery %v; %s", worst, l.account())
}

// TestTPMSwapped puts another TPM behind the same socket and then the right one
// again. The key is refused by name in between, and nothing is deleted.
func TestTPMSwapped(t *testing.T) {
	t.Parallel()
	tpm, a, c, k := setup(t)
	own, other := tpm.Dir, swtpm.Start(t)
	other.Shutdown()
	other.Kill()
	l := startLoad(t, a, k, 2, callLimit)
	var cut cutter
	t.Cleanup(func() { cut.end() })
	cut.power(t, tpm, other.Dir)
	poll(t, "identity-changed", failed, func() bool { return l.seen(fault.IdentityChanged) || l.seen(fault.KeyLost) })
	waitState(t, c, keys.StateIdentityChanged, failed)
	if got, err := c.GetKey(within(t, time.Second), k.Name); err != nil || got.Name != k.Name {
		t.Errorf("the key's record is gone: %v", err)
	}
	cut.power(t, tpm, own)
	took := recovers(t, l)
	l.check(t, append(transient, string(fault.IdentityChanged), string(fault.KeyLost))...)
	t.Logf("signing again %v after the right TPM came back; %s", took, l.account())
}

// clearCommand is TPM2_Clear with the platform's empty authorisation (TPM 2.0
// Part 3, section 24.6), which go-tpm's API does not send by itself.
var clearCommand = []byte{
	0x80, 0x02, 0, 0, 0, 27, 0, 0, 1, 0x26, 0x40, 0, 0, 0x0c,
	0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 0, 0, 0,
}

// TestTPMCleared clears the TPM while the agent uses it.
func TestTPMCleared(t *testing.T) {
	t.Parallel()
	tpm := swtpm.Start(t)
	proxy := swtpm.NewProxy(t, tpm, swtpm.Options{})
	a := daemon.Start(t, daemon.Options{Device: proxy.Device()})
	c := connect(t, a)
	k := create(t, c, agentwire.CreateKeyParameters{Name: "k"})
	l := startLoad(t, a, k, 2, callLimit)
	poll(t, "a signature", failed, func() bool { return l.total() > 0 })

	conn, err := proxy.Dial()
	if err != nil {
		t.Fatal(err)
	}
	reply, err := conn.Send(clearCommand)
	if err != nil || len(reply) < 10 || string(reply[6:10]) != "\x00\x00\x00\x00" {
		t.Fatalf("TPM2_Clear: %x, %v", reply, err)
	}
	conn.Close()
	poll(t, "identity-changed or key-lost", failed, func() bool { return l.seen(fault.IdentityChanged) || l.seen(fault.KeyLost) })
	waitState(t, c, keys.StateIdentityChanged, failed)
	l.check(t, append(transient, string(fault.IdentityChanged), string(fault.KeyLost))...)
	files, err := filepath.Glob(filepath.Join(a.State, "keys", "*", "*.json"))
	if err != nil || len(files) != 1 {
		t.Errorf("key records after the clear: %v, %v, want the one that was there", files, err)
	}
	if !a.Running() {
		t.Fatalf("the agent ended:\n%s", a.Log())
	}
	t.Log(l.account())
}

// TestTPMLockedOut spends the TPM's wrong tries, as disk encryption that shares
// it might. Keys without a PIN go on; those with one say what is the matter.
func TestTPMLockedOut(t *testing.T) {
	t.Parallel()
	tpm := swtpm.Start(t)
	dir := daemon.Dir(t)
	a := daemon.Start(t, daemon.Options{Dir: dir, Device: tpm.Device()})
	c := connect(t, a)
	k := create(t, c, agentwire.CreateKeyParameters{Name: "k"})
	withPIN := create(t, c, agentwire.CreateKeyParameters{Name: "p", PIN: []byte("123456")})
	if a.Stop() != 0 {
		t.Errorf("the agent did not stop cleanly:\n%s", a.Log())
	}
	spendTries(t, tpm)

	a = daemon.Start(t, daemon.Options{Dir: dir, Device: tpm.Device()})
	c = connect(t, a)
	waitState(t, c, keys.StateLocked, failed)
	if err := sign(within(t, failed), c, k); err != nil {
		t.Errorf("a key without a PIN: %v", err)
	}
	_, err := c.Unlock(within(t, failed), agentwire.UnlockKeyParameters{Name: withPIN.Name, PIN: []byte("123456")})
	if kind := fault.KindOf(err); kind != fault.DeviceLocked && kind != fault.PINBlocked {
		t.Errorf("unlock on a locked TPM: %v, want device-locked", err)
	}
	a.Stop()
	tpm.ResetLockout()
	a = daemon.Start(t, daemon.Options{Dir: dir, Device: tpm.Device()})
	c = connect(t, a)
	waitState(t, c, keys.StateReady, failed)
	if _, err := c.Unlock(within(t, failed), agentwire.UnlockKeyParameters{Name: withPIN.Name, PIN: []byte("123456")}); err != nil {
		t.Errorf("unlock after the lockout: %v", err)
	}
	if err := sign(within(t, failed), c, withPIN); err != nil {
		t.Errorf("a key with a PIN after the lockout: %v", err)
	}
}

// spendTries locks the TPM with wrong authorisations for an object of its own.
func spendTries(t *testing.T, tpm *swtpm.TPM) {
	t.Helper()
	dir := t.TempDir()
	tpm2 := func(args ...string) error {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), tpm.Env()...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("%v: %s", args, out)
		}
		return err
	}
	if err := tpm2("tpm2_createprimary", "-C", "o", "-G", "ecc", "-p", "right", "-c", "primary.ctx"); err != nil {
		t.Fatal("tpm2-tools are needed")
	}
	for range 4 {
		if tpm2("tpm2_create", "-C", "primary.ctx", "-P", "wrong", "-G", "ecc", "-u", "u", "-r", "r") == nil {
			t.Fatal("a wrong authorisation was taken")
		}
		_ = tpm2("tpm2_flushcontext", "-t")
	}
}

// TestWrongSignature changes one bit of what the TPM signs. No such signature
// leaves the agent, by whatever client; the key is set aside until a reload.
func TestWrongSignature(t *testing.T) {
	t.Parallel()
	tpm := swtpm.Start(t)
	proxy := swtpm.NewProxy(t, tpm, swtpm.Options{})
	a := daemon.Start(t, daemon.Options{Device: proxy.Device()})
	k := create(t, connect(t, a), agentwire.CreateKeyParameters{Name: "k"})
	conn, err := net.Dial("unix", a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	bare := varlink.NewConn(conn) // unlike package client, it verifies nothing
	ask := func() error {
		p := agentwire.SignTLSClientParameters{Key: k.Name, Scheme: k.Scheme, Message: verifyMessage()}
		return bare.Call(within(t, failed), agentwire.SignTLSClient, p, nil)
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	proxy.SetMutation(func(cc tpm2.TPMCC, reply []byte) []byte {
		if cc == tpm2.TPMCCSign && len(reply) > 20 {
			reply[len(reply)-6] ^= 1 // the last byte of s; five bytes of session follow
		}
		return reply
	})
	if name := kindName(ask()); name != string(fault.KeyMismatch) {
		t.Errorf("a wrong signature: %s, want key-mismatch", name)
	}
	proxy.SetMutation(nil)
	if name := kindName(ask()); name != string(fault.KeyMismatch) {
		t.Errorf("the next call: %s, want key-mismatch until a reload", name)
	}
	a.Signal(syscall.SIGHUP)
	a.WaitLog("reloaded", 1)
	if err := ask(); err != nil {
		t.Errorf("after the reload: %v", err)
	}
}

// TestTPMFails has the TPM say that it failed its self-test, to every command.
func TestTPMFails(t *testing.T) {
	t.Parallel()
	tpm := swtpm.Start(t)
	proxy := swtpm.NewProxy(t, tpm, swtpm.Options{})
	a := daemon.Start(t, daemon.Options{Device: proxy.Device()})
	c := connect(t, a)
	k := create(t, c, agentwire.CreateKeyParameters{Name: "k"})
	l := startLoad(t, a, k, 2, callLimit)
	poll(t, "a signature", failed, func() bool { return l.total() > 0 })
	proxy.SetMutation(func(tpm2.TPMCC, []byte) []byte {
		return []byte{0x80, 0x01, 0, 0, 0, 10, 0, 0, 0x01, 0x01} // TPM_RC_FAILURE
	})
	poll(t, "device-failed", failed, func() bool { return l.seen(fault.DeviceFailed) })
	waitState(t, c, keys.StateFailed, failed)
	if list, err := c.Keys(within(t, time.Second), false); err != nil || len(list) != 1 {
		t.Errorf("a failed device keeps the agent from listing keys: %v, %v", list, err)
	}
	proxy.SetMutation(nil)
	took := recovers(t, l)
	l.check(t, append(transient, string(fault.DeviceFailed))...)
	t.Logf("signing again after %v; %s", took, l.account())
}
