package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/fault"
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
			if fault.KindOf(err) != fault.Internal || !strings.Contains(err.Error(), c.want) {
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
			if !errors.Is(err, syscall.ENOSPC) || fault.KindOf(err) != fault.Internal {
				t.Fatalf("Append on a full disk: %v, want ENOSPC", err)
			}
			break
		}
	}
	if n == 0 || n == 1000 {
		t.Fatalf("%d records fit", n)
	}
	if s, err := l.Verify(t.Context()); err != nil || s.Records != uint64(n) {
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
	for deadline := time.Now().Add(30 * time.Second); (l.Fault() != nil) != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("fault %v after 5 s", l.Fault())
		}
	}
}

func TestTail(t *testing.T) {
	path := logPath(t)
	l := open(t, path)
	const n = 3000 // more than one block
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
		{"newest", 1, nil, 1, "2999", "2999"},
		{"three", 3, nil, 3, "2997", "2999"},
		{"one caller's", 3, of(4), 3, "2974", "2994"},
		{"more than there are", 5000, of(4), 300, "4", "2994"},
		{"all", 5000, nil, n, "0", "2999"},
		{"none kept", 10, none, 0, "", ""},
		{"none wanted", 0, nil, 0, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := l.Tail(t.Context(), c.n, c.keep)
			if err != nil || got == nil || len(got) != c.count {
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
	if got, err := open(t, logPath(t)).Tail(t.Context(), 3, nil); err != nil || got == nil || len(got) != 0 {
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
		if got, err := l.tail(t.Context(), 1, early, reach); err != nil || len(got) != want {
			t.Errorf("%d bytes back: %d lines, %v, want %d", reach, len(got), err, want)
		}
	}
}

// TestReadingEndsWithItsContext, in the middle of the log.
func TestReadingEndsWithItsContext(t *testing.T) {
	l := open(t, logPath(t))
	for range 2500 {
		if err := l.Append(good()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	got, err := l.Tail(ctx, 5000, func(*Record) bool { seen++; cancel(); return true })
	if !errors.Is(err, context.Canceled) || got != nil || seen != 1000 {
		t.Errorf("Tail: %d lines, %v after %d, want canceled after 1000", len(got), err, seen)
	}
	if s, err := l.Verify(ctx); !errors.Is(err, context.Canceled) || s.Records != 0 {
		t.Errorf("Verify: %d records, %v, want canceled", s.Records, err)
	}
	if s, err := l.Verify(&after{Context: t.Context(), n: 2}); !errors.Is(err, context.Canceled) || s.Records != 2000 {
		t.Errorf("Verify: %d records, %v, want canceled after 2000", s.Records, err)
	}
}

// after is a context that ends after it was asked n times.
type after struct {
	context.Context
	n int
}

func (a *after) Err() error {
	if a.n--; a.n < 0 {
		return context.Canceled
	}
	return nil
}

// counted counts the reads of a file.
type counted struct {
	*bytes.Reader
	reads int
}

func (c *counted) ReadAt(b []byte, from int64) (int, error) {
	c.reads++
	return c.Reader.ReadAt(b, from)
}

func TestBackwards(t *testing.T) {
	long := strings.Repeat("x", 2*block)
	for name, want := range map[string][]string{
		"nothing": {}, "one line": {"a"}, "empty lines": {"", "a", "", ""}, "long": {"a", long, "b", long},
		"two blocks": strings.Split(strings.Repeat("1234567,", 2*block/8-1)+"1234567", ","),
	} {
		text := strings.Join(append(want, ""), "\n")
		file := &counted{Reader: bytes.NewReader([]byte(text))}
		lines := backwards{file: file, from: int64(len(text))}
		for i := len(want) - 1; i >= 0; i-- {
			if got, err := lines.next(); err != nil || string(got) != want[i] {
				t.Fatalf("%s: line %d: got %.20q, %v, want %.20q", name, i, got, err, want[i])
			}
		}
		if _, err := lines.next(); err != io.EOF {
			t.Errorf("%s: got %v at its start, want EOF", name, err)
		}
		if most := len(text)/(256<<10) + 1; file.reads > most {
			t.Errorf("%s: %d reads, want at most %d", name, file.reads, most)
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
