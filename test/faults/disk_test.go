package faults_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/daemon"
	"holdfast/test/swtpm"
)

// TestDiskFull fills the disk that holds the key records, at each of the first
// few KiB, and makes a key: either it is acknowledged and stays, or it fails
// with a name and nothing of it is left.
func TestDiskFull(t *testing.T) {
	needRoot(t)
	t.Parallel()
	tpm, dir := swtpm.Start(t), daemon.Dir(t)
	state := filepath.Join(dir, "state")
	tmpfs(t, state, 256<<10)
	start := func() *daemon.Agent {
		return daemon.Start(t, daemon.Options{Dir: dir, Device: tpm.Device(), Args: []string{"--audit", filepath.Join(dir, "audit.log")}})
	}
	a := start()
	c := connect(t, a)
	old := create(t, c, agentwire.CreateKeyParameters{Name: "old"})
	made, refused := 0, 0
	for pages := range 8 {
		name := fmt.Sprintf("k%d", pages)
		fill(t, filepath.Join(state, "ballast"), pages*os.Getpagesize())
		_, err := c.CreateKey(within(t, failed), agentwire.CreateKeyParameters{Name: name, Purpose: string(keys.TLSClient)})
		if err := sign(within(t, failed), c, old); err != nil {
			t.Errorf("%d pages free: the old key: %v", pages, err)
		}
		if err == nil {
			made++
		} else {
			refused++
			if kind := fault.KindOf(err); kind != fault.Internal || err.Error() == "internal error" {
				t.Errorf("%d pages free: %v of kind %s, want internal with the reason", pages, err, kind)
			}
		}
		// Only the state that the agent finds when it starts again counts.
		if err := os.Remove(filepath.Join(state, "ballast")); err != nil {
			t.Fatal(err)
		}
		a.Stop()
		a = start()
		c = connect(t, a)
		k, found := c.GetKey(within(t, failed), name)
		if (err == nil) != (found == nil) {
			t.Errorf("%d pages free: create said %v, and after a restart the key is there: %v", pages, err, found)
		}
		if found == nil {
			if err := sign(within(t, failed), c, k); err != nil {
				t.Errorf("%d pages free: %v", pages, err)
			}
		}
	}
	if made == 0 || refused == 0 {
		t.Errorf("%d keys made and %d refused: the disk was never full or always", made, refused)
	}
	t.Logf("%d keys made, %d refused, the old key always signed", made, refused)
}

// TestAuditDiskFull fills the disk of the audit log: what cannot be recorded is
// not done.
func TestAuditDiskFull(t *testing.T) {
	needRoot(t)
	t.Parallel()
	tpm, dir := swtpm.Start(t), daemon.Dir(t)
	logs := filepath.Join(dir, "logs")
	tmpfs(t, logs, 64<<10)
	a := daemon.Start(t, daemon.Options{Dir: dir, Device: tpm.Device(), Args: []string{"--audit", filepath.Join(logs, "audit.log")}})
	c := connect(t, a)
	k := create(t, c, agentwire.CreateKeyParameters{Name: "k"})
	ballast := filepath.Join(logs, "ballast")
	fill(t, ballast, 0)
	var err error
	for range 500 { // the last page of the log has room left
		if err = sign(within(t, failed), c, k); err != nil {
			break
		}
	}
	if fault.KindOf(err) != fault.Internal {
		t.Errorf("signing without a record: %v, want internal", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := sign(within(t, failed), c, k); err != nil {
		t.Errorf("with room for the log again: %v\n%s", err, a.Log())
	}
	if _, err := c.VerifyAudit(within(t, failed)); err != nil {
		t.Errorf("the log after the disk was full: %v", err)
	}
}

// TestFullDiskIsAProblem fills the disk of the key records: the status says so.
func TestFullDiskIsAProblem(t *testing.T) {
	needRoot(t)
	t.Parallel()
	dir := daemon.Dir(t)
	state := filepath.Join(dir, "state")
	tmpfs(t, state, 256<<10)
	a := daemon.Start(t, daemon.Options{Dir: dir, Device: swtpm.Start(t).Device(), Args: []string{"--audit", filepath.Join(dir, "audit.log")}})
	c := connect(t, a)
	problems := func() (n int) {
		s, err := c.Status(within(t, failed))
		if err != nil {
			t.Fatal(err)
		}
		for _, notice := range s.Notices {
			if notice.Problem {
				n++
			}
		}
		return n
	}
	if n := problems(); n != 0 {
		t.Errorf("%d problems before", n)
	}
	fill(t, filepath.Join(state, "ballast"), 0)
	if n := problems(); n != 1 {
		t.Errorf("%d problems with a full disk, want 1", n)
	}
}

// tmpfs mounts a small disk, until the test ends.
func tmpfs(t *testing.T, dir string, size int) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		t.Fatalf("a tmpfs is needed: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("umount %s: %v", dir, err)
		}
	})
}

// fill fills the disk with a file until only the given number of bytes is left.
func fill(t *testing.T, path string, leave int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = io.Copy(f, zeroes{})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(max(info.Size()-int64(leave), 0)); err != nil {
		t.Fatal(err)
	}
}

// zeroes never ends.
type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }
