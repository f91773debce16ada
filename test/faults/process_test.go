package faults_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/agentwire"
	"holdfast/test/daemon"
	"holdfast/test/pace"
	"holdfast/test/swtpm"
)

// TestNoNetwork finds every socket that a working agent has open among the Unix
// sockets: none is left over for any network.
func TestNoNetwork(t *testing.T) {
	t.Parallel()
	_, a, c, k := setup(t)
	if err := sign(within(t, failed), c, k); err != nil {
		t.Fatal(err)
	}
	inodes := a.Sockets()
	if len(inodes) < 3 {
		t.Fatalf("%d sockets: at least a listener, a caller and the TPM are wanted", len(inodes))
	}
	families := readFamilies(t, a.Pid())
	for _, inode := range inodes {
		if family := families[inode]; family != "unix" {
			t.Errorf("socket %s is of family %q, want unix", inode, family)
		}
	}
	// The method sees a network socket when there is one.
	l, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", os.Getpid()))
	if err != nil || len(l) == 0 {
		t.Fatal(err)
	}
}

// readFamilies maps the inodes of the sockets in a process's network namespace
// to their families.
func readFamilies(t *testing.T, pid int) map[string]string {
	t.Helper()
	families := map[string]string{}
	for family, column := range map[string]int{"unix": 6, "tcp": 9, "tcp6": 9, "udp": 9, "udp6": 9, "raw": 9, "raw6": 9, "packet": 8, "netlink": 9} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, family))
		if os.IsNotExist(err) {
			continue // a family that this kernel does not have
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > column {
				families[fields[column]] = family
			}
		}
	}
	return families
}

// TestMemoryIsPrivate has another process of the agent's own uid try to read the
// agent's memory. The same reader can read the memory of an ordinary process.
func TestMemoryIsPrivate(t *testing.T) {
	needRoot(t)
	t.Parallel()
	a := daemon.Start(t, daemon.Options{UID: otherUID})
	ordinary := asOther("sleep", "60")
	if err := ordinary.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ordinary.Process.Kill()
		_ = ordinary.Wait()
	})
	if out, err := readMemory(ordinary.Process.Pid); err != nil {
		t.Fatalf("the reader cannot read an ordinary process: %s", out)
	}
	for _, name := range []string{"mem", "environ", "maps"} {
		out, err := asOther("head", "-c", "1", fmt.Sprintf("/proc/%d/%s", a.Pid(), name)).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "Permission denied") {
			t.Errorf("%s of the agent: %q, %v, want permission denied", name, out, err)
		}
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", a.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	if i := bytes.Index(limits, []byte("Max core file size")); i < 0 || !slices.Equal(strings.Fields(string(limits[i:]))[4:6], []string{"0", "0"}) {
		t.Errorf("the core limit is not 0:\n%s", limits)
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", a.Pid()))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads: %v, %v", threads, err)
	}
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if err == nil && !bytes.Contains(status, []byte("NoNewPrivs:\t1\n")) {
			t.Errorf("%s: the thread can gain privileges", thread)
		}
	}
}

// asOther is a command under the other uid.
func asOther(args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: otherUID, Gid: otherUID}, Pdeathsig: syscall.SIGKILL,
	}
	return cmd
}

// readMemory opens a process's memory as the other uid. Reading its first byte
// is an error for every process: only opening it is asked for.
func readMemory(pid int) ([]byte, error) {
	return asOther("sh", "-c", fmt.Sprintf("exec 3</proc/%d/mem", pid)).CombinedOutput()
}

// TestSocketMode looks at the socket as fast as it can while agents start under
// careless umasks: whenever it is there it is closed to others.
func TestSocketMode(t *testing.T) {
	t.Parallel()
	dir, looks, starts := daemon.Dir(t), 0, pace.Share(20, 100)
	for round := range starts {
		umask := []string{"000", "077", "022", "777"}[round%4]
		a := daemon.Launch(t, daemon.Options{Dir: dir, Wrap: []string{"sh", "-c", "umask " + umask + `; exec "$@"`, "sh"}})
		for deadline := time.Now().Add(failed); ; {
			info, err := os.Lstat(a.Socket)
			if err == nil {
				looks++
				if got := info.Mode(); got != fs.ModeSocket|0o600 {
					t.Fatalf("umask %s: the socket has mode %v", umask, got)
				}
				if a.Ready() == nil {
					break
				}
			}
			if time.Now().After(deadline) || !a.Running() {
				t.Fatalf("umask %s: no socket:\n%s", umask, a.Log())
			}
		}
		if status := a.Stop(); status != 0 {
			t.Fatalf("umask %s: status %d:\n%s", umask, status, a.Log())
		}
	}
	checkModes(t, dir)
	t.Logf("%d starts, %d looks at a socket, all 0600", starts, looks)
}

// checkModes holds everything that the agent has made to its owner alone.
func checkModes(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDrain stops an agent under load: calls in progress are answered, nothing
// wrong comes out, and the agent is gone within its five seconds with status 0.
func TestDrain(t *testing.T) {
	t.Parallel()
	tpm := swtpm.Start(t)
	for round := range 10 {
		a := daemon.Start(t, daemon.Options{Device: tpm.Device()})
		k := create(t, connect(t, a), agentwire.CreateKeyParameters{Name: "k"})
		limit := 6*time.Second + slack(t, func() error { return sign(within(t, failed), connect(t, a), k) })
		l := startLoad(t, a, k, 8, callLimit)
		poll(t, "signatures", failed, func() bool { return l.total() > 20 })
		start := time.Now()
		if status := a.Stop(); status != 0 {
			t.Errorf("round %d: status %d:\n%s", round, status, a.Log())
		}
		if took := time.Since(start); took > limit {
			t.Errorf("round %d: the agent took %v to stop", round, took)
		}
		l.check(t, lost)
		if _, err := os.Lstat(a.Socket); !os.IsNotExist(err) {
			t.Errorf("round %d: the socket is still there: %v", round, err)
		}
		if round == 9 {
			t.Log(l.account())
		}
	}
}

// TestDrainAnswers stops an agent in the middle of a signature, with others
// waiting behind it: all of them are answered.
func TestDrainAnswers(t *testing.T) {
	t.Parallel()
	tpm := swtpm.Start(t)
	proxy := swtpm.NewProxy(t, tpm, swtpm.Options{})
	a := daemon.Start(t, daemon.Options{Device: proxy.Device()})
	c := connect(t, a)
	k := create(t, c, agentwire.CreateKeyParameters{Name: "k"})
	key, err := c.Key(within(t, failed), k.Name)
	if err != nil {
		t.Fatal(err)
	}
	proxy.SetDelay(tpm2.TPMCCSign, 300*time.Millisecond)
	proxy.ResetCounts()
	const calls = 4
	signed, ctx := make(chan error, calls), within(t, failed)
	for range calls {
		go func() { signed <- signWith(ctx, key, k) }()
	}
	poll(t, "the calls at the agent", failed, func() bool { return records(t, a) >= calls })
	poll(t, "the signature's command", failed, func() bool { return proxy.Counts()[tpm2.TPMCCSign] > 0 })
	if status := a.Stop(); status != 0 {
		t.Errorf("status %d:\n%s", status, a.Log())
	}
	for range calls {
		if err := <-signed; err != nil {
			t.Errorf("a call in progress: %v", err)
		}
	}
}

// records counts the decisions to sign in the agent's log.
func records(t *testing.T, a *daemon.Agent) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(a.State, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"kind":"decision"`) && strings.Contains(line, "sign-tls-client") {
			n++
		}
	}
	return n
}

// TestStopsWhenWedged stops an agent whose TPM does not answer.
func TestStopsWhenWedged(t *testing.T) {
	t.Parallel()
	tpm, a, c, k := setup(t)
	limit := 8*time.Second + slack(t, func() error { return sign(within(t, failed), c, k) })
	l := startLoad(t, a, k, 2, 30*time.Second)
	poll(t, "signatures", failed, func() bool { return l.total() > 0 })
	tpm.Stop()
	t.Cleanup(tpm.Cont)
	start := time.Now()
	a.Signal(syscall.SIGTERM)
	poll(t, "the agent's end", failed, func() bool { return !a.Running() })
	l.end()
	if took := time.Since(start); took > limit {
		t.Errorf("it took %v, want little more than 5 s, at most %v", took, limit)
	}
}
