package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, want := range []string{"old", "new"} {
		if err := Write(path, []byte(want), nil); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		got, readErr := os.ReadFile(path)
		if err := errors.Join(err, readErr); err != nil || string(got) != want || info.Mode().Perm() != 0o600 {
			t.Errorf("got %q (%v), %v, want %q for this user alone", got, info.Mode(), err, want)
		}
	}
	if err := Write(path, []byte("new"), func(f *os.File) error { return f.Chmod(0o640) }); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("got %v, %v, want the mode that prepare sets", info, err)
	}
}

func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("no")
	if err := Write(path, []byte("new"), func(*os.File) error { return cause }); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
	entries, err := os.ReadDir(dir)
	got, readErr := os.ReadFile(path)
	if err := errors.Join(err, readErr); err != nil || len(entries) != 1 || string(got) != "old" {
		t.Errorf("got %v, %q, %v, want the old file alone", entries, got, err)
	}
}

func TestRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(path); err != nil {
		t.Error(err)
	}
	if err := Remove(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v, want %v", err, fs.ErrNotExist)
	}
}
