package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func sum(line []byte) string { return hash(sha256.Sum256(line)).String() }

// breaks returns the breaks that a log tells of, as what they are.
func breaks(t *testing.T, path string) []Break {
	t.Helper()
	var all []Break
	for _, line := range split(read(t, path)) {
		r, err := decode(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind == KindBreak {
			all = append(all, Break{What: r.Detail["what"], Fact: r.Detail["fact"], Kept: r.Detail["kept"]})
		}
	}
	return all
}

// TestTornEndIsKeptAside adds what a crash in the middle of a write leaves.
func TestTornEndIsKeptAside(t *testing.T) {
	whole := read(t, written(t, 4))
	for name, end := range map[string][]byte{
		"half a record":      split(whole)[3][:100],
		"without newline":    bytes.TrimSuffix(split(whole)[3], []byte("\n")),
		"zeros":              make([]byte, 5000),
		"a line of nothing":  []byte("\n"),
		"more than a line":   bytes.Repeat([]byte("x"), 3*maxLine),
		"another's record":   split(whole)[1],
		"another log's next": split(whole)[3],
	} {
		t.Run(name, func(t *testing.T) {
			path := written(t, 3)
			write(t, path, append(read(t, path), end...))
			extend(t, path, 2)
			wantGood(t, path, 6)
			b := breaks(t, path)
			if len(b) != 1 || b[0].What != whatTorn || !strings.Contains(b[0].Fact, fmt.Sprint(len(end), " bytes after record 3")) {
				t.Fatalf("breaks %+v, want one that is torn after record 3", b)
			}
			if kept := read(t, b[0].Kept); !bytes.Equal(kept, end) {
				t.Errorf("kept %d bytes that are not the %d torn ones", len(kept), len(end))
			}
		})
	}
}

// TestChangesBetweenRunsAreRecorded changes a closed log, opens it as a restart
// does, and wants the change to stay visible.
func TestChangesBetweenRunsAreRecorded(t *testing.T) {
	cut := func(l [][]byte) [][]byte { return l[:3] }
	for _, c := range []struct {
		name    string
		change  func([][]byte) [][]byte
		anchor  string // what to do with the anchor
		what    string
		records uint64 // after one more
		line    int    // that Verify names
	}{
		{"cut", cut, "", whatCut, 5, 4},
		{"emptied", func([][]byte) [][]byte { return nil }, "", whatCut, 2, 1},
		{"last edited", func(l [][]byte) [][]byte {
			l[4] = bytes.Replace(l[4], []byte("alice"), []byte("mallo"), 1)
			return l
		}, "", whatEdited, 7, 6},
		{"cut without anchor", cut, "remove", whatAnchor, 5, 4},
		{"damaged anchor", func(l [][]byte) [][]byte { return l }, "damage", whatAnchor, 7, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := written(t, 5)
			write(t, path, join(c.change(split(read(t, path)))))
			switch c.anchor {
			case "remove":
				os.Remove(AnchorPath(path))
			case "damage":
				write(t, AnchorPath(path), []byte("x"))
			}
			extend(t, path, 1)
			extend(t, path, 0)
			if b := breaks(t, path); len(b) != 1 || b[0].What != c.what {
				t.Errorf("breaks %+v, want one: %s", b, c.what)
			}
			wantFault(t, path, c.line, c.what)
			if s, _ := verifyFile(path); s.Records != c.records {
				t.Errorf("%d records, want %d", s.Records, c.records)
			}
		})
	}
}

// TestRecordsAfterTheAnchorStay is what kill -9 leaves: a log that is ahead.
func TestRecordsAfterTheAnchorStay(t *testing.T) {
	path := written(t, 3)
	old := read(t, AnchorPath(path))
	extend(t, path, 4)
	write(t, AnchorPath(path), old)
	extend(t, path, 1)
	wantGood(t, path, 8)
}

// appendForever makes the test binary a writer that the test kills.
const appendForever = "AUDIT_TEST_APPEND"

func appendUntilKilled(path string) int {
	l, err := Open(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for l.Append(good()) == nil {
		fmt.Println(l.head.Seq)
	}
	return 1
}

// TestKillLosesNothing kills a writer at some moment, many times on one log:
// every record for which Append returned is there, and the chain is whole.
func TestKillLosesNothing(t *testing.T) {
	path := logPath(t)
	for round := range 30 {
		last := runAndKill(t, path, time.Duration(round)*50*time.Microsecond)
		l := open(t, path)
		s, err := l.Verify(t.Context())
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if s.Records < last {
			t.Fatalf("round %d: %d records, and Append returned for %d", round, s.Records, last)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wantGood(t, path, wantRecords(t, path))
}

func wantRecords(t *testing.T, path string) uint64 { return uint64(len(split(read(t, path)))) }

// runAndKill starts a writer, kills it some time after its first record and
// returns the number of the last record that it reported.
func runAndKill(t *testing.T, path string, after time.Duration) (last uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), appendForever+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	if _, err := fmt.Fscanln(r, &last); err != nil {
		t.Fatalf("the writer's first record: %v", err)
	}
	timer := time.AfterFunc(after, func() { cmd.Process.Kill() })
	defer timer.Stop()
	for {
		if _, err := fmt.Fscanln(r, &last); err != nil {
			break
		}
	}
	io.Copy(io.Discard, r)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Fatalf("the writer was not killed: %v", err)
	}
	return last
}

func TestTornEndsDoNotOverwriteEachOther(t *testing.T) {
	path := written(t, 1)
	write(t, path+".torn-2", []byte("older"))
	write(t, path, append(read(t, path), "torn"...))
	extend(t, path, 0)
	kept, err := filepath.Glob(path + ".torn-*")
	if err != nil || len(kept) != 2 || string(read(t, path+".torn-2")) != "older" {
		t.Errorf("kept %q (%v), want the older file and a new one", kept, err)
	}
}
