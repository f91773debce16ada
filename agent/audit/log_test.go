package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/internal/fault"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(appendForever); path != "" {
		os.Exit(appendUntilKilled(path))
	}
	goleak.VerifyTestMain(m)
}

// logPath returns the name of a log that is not there yet.
func logPath(t testing.TB) string { return filepath.Join(t.TempDir(), "audit.log") }

// open opens a log that the test closes.
func open(t testing.TB, path string) *Log {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// good is a record with every member set.
func good() Record {
	return Record{
		Kind:      KindDecision,
		Request:   "0123456789abcdef",
		Caller:    &Caller{UID: 1000, User: "alice", GID: 100, PID: 4711, Start: 12345, Unit: "x.service", Reported: &Reported{UID: 1001, PID: 4712, Start: 12346, Unit: "y.service"}},
		Operation: "sign-tls-client",
		Key:       "web",
		Owner:     new(uint32(0)),
		Purpose:   "tls-client",
		Decision:  "allow",
		Rule:      "policy.yaml:12",
		Outcome:   "ok",
		Detail:    map[string]string{"server": "<kubectl>", "backend": "tpm"},
	}
}

// written returns a log of n records that has been closed.
func written(t testing.TB, n int) string {
	t.Helper()
	path := logPath(t)
	extend(t, path, n)
	return path
}

// extend appends n records to a log that is closed before and after.
func extend(t testing.TB, path string, n int) {
	t.Helper()
	l := open(t, path)
	for i := range n {
		r := good()
		r.Request = fmt.Sprint(i + 1)
		if err := l.Append(r); err != nil {
			t.Fatalf("Append: %v", err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// wantGood fails unless the log verifies with n records.
func wantGood(t testing.TB, path string, n uint64) Summary {
	t.Helper()
	s, err := verifyFile(path)
	if err != nil || s.Records != n {
		t.Fatalf("Verify: %d records, %v, want %d and no fault", s.Records, err, n)
	}
	return s
}

// wantFault fails unless Verify names this line and kind.
func wantFault(t testing.TB, path string, line int, what string) {
	t.Helper()
	_, err := verifyFile(path)
	var f *Fault
	if !errors.As(err, &f) || f.Line != line || f.What != what {
		t.Errorf("Verify: %v, want line %d: %s", err, line, what)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAppendVerifyReopen(t *testing.T) {
	path := written(t, 3)
	s := wantGood(t, path, 3)
	extend(t, path, 2)
	if again := wantGood(t, path, 5); again.Head == s.Head {
		t.Errorf("after two more records: %+v, before: %+v", again, s)
	}
	text := string(read(t, path))
	for _, want := range []string{`"prev":"` + strings.Repeat("0", 64) + `"`, `"seq":5`, `"owner":0`, `<kubectl>`, `"unit":"x.service"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the log has no %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, KindBreak.quoted()) {
		t.Errorf("a log that was closed well has a break:\n%s", text)
	}
}

func (k Kind) quoted() string { return `"` + string(k) + `"` }

func TestRecordIsInTheFileWhenAppendReturns(t *testing.T) {
	path := logPath(t)
	l := open(t, path)
	for i := range 10 {
		if err := l.Append(good()); err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(read(t, path), []byte("\n")); got != i+1 {
			t.Fatalf("%d lines after %d records", got, i+1)
		}
	}
}

func TestAnchorFollowsWithinASecond(t *testing.T) {
	path := logPath(t)
	l := open(t, path)
	if err := l.Append(good()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if a, err := readAnchor(path); err == nil && a.Seq == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no anchor after 5 s")
		}
	}
}

func TestVerifyWhileOpen(t *testing.T) {
	path := logPath(t)
	l := open(t, path)
	done := make(chan error)
	go func() {
		var err error
		for i := 0; i < 500 && err == nil; i++ {
			err = l.Append(good())
		}
		done <- err
	}()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
		if _, err := l.Verify(t.Context()); err != nil {
			t.Fatalf("Verify of an open log: %v", err)
		}
	}
	if s, err := l.Verify(t.Context()); err != nil || s.Records != 500 {
		t.Errorf("%d records, %v, want 500", s.Records, err)
	}
}

func TestStrangeTextsReadBack(t *testing.T) {
	path := logPath(t)
	l := open(t, path)
	for _, text := range []string{"", "\xff\xfe", "\x00\n\r", "\u2028", `"\`, "<&>", strings.Repeat("ä", 3000), strings.Repeat("\x01", 3000)} {
		r := good()
		r.Key, r.Caller.User, r.Detail = text, text, map[string]string{text: text}
		if err := l.Append(r); err != nil {
			t.Errorf("Append with %.20q: %v", text, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	wantGood(t, path, 8)
}

func TestAppendDoesNotChangeTheRecord(t *testing.T) {
	l := open(t, logPath(t))
	r := good()
	r.Caller.User, r.Detail["x"] = "\xff", "\xff"
	if err := l.Append(r); err != nil {
		t.Fatal(err)
	}
	if r.Caller.User != "\xff" || r.Detail["x"] != "\xff" || r.Seq != 0 {
		t.Errorf("Append changed the caller's record: %+v", r)
	}
}

func TestTooLongARecordIsRefusedAndHarmless(t *testing.T) {
	path := logPath(t)
	l := open(t, path)
	r := good()
	for i := range 100 {
		r.Detail[fmt.Sprint(i)] = strings.Repeat("x", 400)
	}
	if err := l.Append(r); fault.KindOf(err) != fault.Internal {
		t.Errorf("Append: %v, want an internal error", err)
	}
	if err := l.Append(good()); err != nil {
		t.Errorf("the next record: %v", err)
	}
	l.Close()
	wantGood(t, path, 1)
}

func TestClosedLogRefuses(t *testing.T) {
	l := open(t, logPath(t))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(good()); err == nil {
		t.Error("Append on a closed log succeeded")
	}
}

// TestOpenRefuses starts from a good log and changes one thing.
func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(path string) error
		want   string
	}{
		{"nothing", func(string) error { return nil }, ""},
		{"mode", func(p string) error { return os.Chmod(p, 0o640) }, "mode 0640, want 0600"},
		{"owner", func(p string) error { return os.Chown(p, 12345, 0) }, "owned by uid 12345"},
		{"link", func(p string) error { return errors.Join(os.Rename(p, p+"2"), os.Symlink(p+"2", p)) }, "a symbolic link"},
		{"second name", func(p string) error { return os.Link(p, p+"2") }, "2 hard links"},
		{"directory", func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) }, "directory"},
		{"open directory", func(p string) error { return os.Chmod(filepath.Dir(p), 0o777) }, "others may write"},
		{"foreign directory", func(p string) error { return os.Chown(filepath.Dir(p), 12345, 0) }, "owned by another"},
		{"another file", func(p string) error { return os.WriteFile(p, []byte("important\n"), 0o600) }, "holds no audit record"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := written(t, 2)
			if err := c.change(path); err != nil {
				t.Fatal(err)
			}
			l, err := Open(path)
			if err == nil {
				l.Close()
			}
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path)):
				t.Errorf("%v, want %q and the path", err, c.want)
			}
		})
	}
}

func TestOneWriterOnly(t *testing.T) {
	l := open(t, logPath(t))
	if _, err := Open(l.path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("second Open: %v", err)
	}
}
