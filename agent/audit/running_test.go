package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/agent/keys"
)

// TestChangesWhileOpen changes the file of an open log: the next record is
// refused before what it is about can happen, and after a restart the log tells.
func TestChangesWhileOpen(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(path string) error
		want   string
	}{
		{"cut", func(p string) error { return os.Truncate(p, 10) }, "the log has 10 bytes, not the"},
		{"longer", func(p string) error {
			f, err := os.OpenFile(p, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("x")
			return errors.Join(err, f.Close())
		}, "bytes, not the"},
		{"removed", os.Remove, "was removed"},
		{"linked", func(p string) error { return os.Link(p, p+"2") }, "second name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := logPath(t)
			l := open(t, path)
			if err := errors.Join(l.Append(good()), l.Append(good())); err != nil {
				t.Fatal(err)
			}
			if err := c.change(path); err != nil {
				t.Fatal(err)
			}
			err := l.Append(good())
			if keys.KindOf(err) != keys.Internal || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Append: %v, want %q", err, c.want)
			}
			if err := l.Fault(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Fault: %v, want %q", err, c.want)
			}
			if err := l.Append(good()); err == nil {
				t.Error("the log went on")
			}
		})
	}
}

func TestLogMovedAwayWhileOpen(t *testing.T) {
	path := logPath(t)
	l := open(t, path)
	if err := errors.Join(l.Append(good()), os.Rename(path, path+".1"), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	waitForFault(t, l, true)
	if err := l.Append(good()); err == nil || !strings.Contains(err.Error(), "moved away") {
		t.Errorf("Append: %v, want a refusal", err)
	}
}

// TestFullDisk fills a real file system: Append refuses, nothing of the refused
// record stays, and the log goes on when there is room again.
func TestFullDisk(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Fatalf("mount a tmpfs (the test needs root): %v", err)
	}
	defer func() {
		if err := syscall.Unmount(mount, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}()
	filler, path := filepath.Join(mount, "filler"), filepath.Join(mount, "audit.log")
	write(t, filler, make([]byte, 32<<10))
	l := open(t, path)
	defer l.Close()
	n := 0
	for ; n < 1000; n++ {
		if err := l.Append(good()); err != nil {
			if !errors.Is(err, syscall.ENOSPC) || keys.KindOf(err) != keys.Internal {
				t.Fatalf("Append on a full disk: %v, want ENOSPC", err)
			}
			break
		}
	}
	if n == 0 || n == 1000 {
		t.Fatalf("%d records fit", n)
	}
	if s, err := l.Verify(); err != nil || s.Records != uint64(n) {
		t.Errorf("%d records, %v, want %d", s.Records, err, n)
	}
	if lines := split(read(t, path)); len(lines) != n {
		t.Errorf("%d lines in the file, want %d", len(lines), n)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(good()); err != nil {
		t.Errorf("Append after room was made: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	wantGood(t, path, uint64(n+1))
}

// TestAnchorThatCannotBeWritten is reported, stops nothing, and is tried again
// although nothing new is appended.
func TestAnchorThatCannotBeWritten(t *testing.T) {
	path := logPath(t)
	l := open(t, path)
	blocker := AnchorPath(path) + ".new"
	if err := errors.Join(os.Mkdir(blocker, 0o700), os.Mkdir(filepath.Join(blocker, "x"), 0o700), l.Append(good())); err != nil {
		t.Fatal(err)
	}
	waitForFault(t, l, true)
	if err := l.Fault(); !strings.Contains(err.Error(), "write the anchor") {
		t.Errorf("Fault: %v", err)
	}
	if err := os.RemoveAll(blocker); err != nil {
		t.Fatal(err)
	}
	waitForFault(t, l, false)
	l.mu.Lock()
	l.stale = errors.New("again")
	l.mu.Unlock()
	if err := l.Append(good()); err != nil {
		t.Errorf("Append while the anchor falls behind: %v", err)
	}
	l.Close()
	wantGood(t, path, 2)
}

// waitForFault polls until the log has a fault, or none.
func waitForFault(t *testing.T, l *Log, want bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); (l.Fault() != nil) != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("fault %v after 5 s", l.Fault())
		}
	}
}

func TestTail(t *testing.T) {
	path := logPath(t)
	l := open(t, path)
	const n = 1000 // far more than one block
	for i := range n {
		r := good()
		r.Request = fmt.Sprint(i)
		r.Caller.UID = uint32(i % 10)
		if err := l.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	of := func(uid uint32) func(*Record) bool { return func(r *Record) bool { return r.Caller.UID == uid } }
	none := func(*Record) bool { return false }
	for _, c := range []struct {
		name        string
		n           int
		keep        func(*Record) bool
		count       int
		first, last string // requests
	}{
		{"newest", 1, nil, 1, "999", "999"},
		{"three", 3, nil, 3, "997", "999"},
		{"one caller's", 3, of(4), 3, "974", "994"},
		{"more than there are", 5000, of(4), 100, "4", "994"},
		{"all", 5000, nil, n, "0", "999"},
		{"none kept", 10, none, 0, "", ""},
		{"none wanted", 0, nil, 0, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := l.Tail(c.n, c.keep)
			if err != nil || len(got) != c.count {
				t.Fatalf("%d lines, %v, want %d", len(got), err, c.count)
			}
			if c.count == 0 {
				return
			}
			for line, want := range map[string]string{got[0]: c.first, got[len(got)-1]: c.last} {
				if r, err := decode([]byte(line)); err != nil || r.Request != want {
					t.Errorf("request %s, %v, want %s", r.Request, err, want)
				}
			}
		})
	}
	if got, err := open(t, logPath(t)).Tail(3, nil); err != nil || len(got) != 0 {
		t.Errorf("an empty log: %q, %v", got, err)
	}
}

func TestTailLooksBackSoFar(t *testing.T) {
	l := open(t, logPath(t))
	for i := range 100 {
		r := good()
		r.Request = fmt.Sprint(i)
		if err := l.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	length := l.head.Bytes / 100
	early := func(r *Record) bool { return r.Request == "49" }
	for reach, want := range map[int64]int{length * 40: 0, length * 60: 1, maxSearch: 1} {
		if got, err := l.tail(1, early, reach); err != nil || len(got) != want {
			t.Errorf("%d bytes back: %d lines, %v, want %d", reach, len(got), err, want)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	l := open(b, logPath(b))
	r := good()
	for b.Loop() {
		if err := l.Append(r); err != nil {
			b.Fatal(err)
		}
	}
}
