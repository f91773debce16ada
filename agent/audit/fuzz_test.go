package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLine: a line that reads as a record is exactly what that record is written
// as, so that no edit that keeps the meaning goes unseen.
func FuzzLine(f *testing.F) {
	var seeds [][]byte
	for _, line := range split(read(f, written(f, 3))) {
		seeds = append(seeds, bytes.TrimSuffix(line, []byte("\n")))
	}
	seeds = append(seeds, []byte(`{"time":"2026-01-02T03:04:05Z","seq":1,"kind":"start","prev":""}`), []byte(`{}`), nil)
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := decode(line)
		if err != nil {
			return
		}
		if again, err := encode(&r); err != nil || !bytes.Equal(again, line) {
			t.Errorf("%q is written as %q (%v)", line, again, err)
		}
		if bytes.ContainsAny(line, "\n") {
			t.Errorf("a record of more than one line: %q", line)
		}
	})
}

// FuzzVerify changes the files of a good log. Whatever it does, a log that
// verifies is the good one, and the agent can go on after any that it opens.
func FuzzVerify(f *testing.F) {
	path := written(f, 4)
	log, anchored := read(f, path), read(f, AnchorPath(path))
	lines := split(log)
	seeds := [][2][]byte{
		{log, anchored},
		{log[:len(log)-10], anchored},
		{join([][]byte{lines[0], lines[2]}), anchored},
		{nil, nil},
		{log, nil},
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s[0], s[1])
	}
	dir, err := os.MkdirTemp("/dev/shm", "audit-fuzz-") // where fsync costs nothing
	if err != nil {
		dir = f.TempDir()
	}
	defer os.RemoveAll(dir)
	f.Fuzz(func(t *testing.T, data, end []byte) {
		path := filepath.Join(dir, "audit.log")
		for _, old := range must(filepath.Glob(path + "*")) {
			os.Remove(old)
		}
		write(t, path, data)
		write(t, AnchorPath(path), end)
		_, err := verifyFile(path)
		if err == nil && bytes.Equal(end, anchored) && !bytes.Equal(data, log) && !bytes.HasPrefix(data, log) {
			t.Errorf("a changed log verifies:\n%s", data)
		}
		l, err := Open(path)
		if err != nil {
			return
		}
		defer l.Close()
		if err := l.Append(good()); err != nil {
			t.Errorf("Append: %v", err)
		}
		if now := string(read(t, path)); !strings.HasSuffix(now, "}\n") {
			t.Errorf("the log ends in %q", now[max(0, len(now)-20):])
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
