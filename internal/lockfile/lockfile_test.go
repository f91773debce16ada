package lockfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/lockfile"
)

func TestTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := lockfile.Take(path)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != fmt.Sprintf("%d\n", os.Getpid()) {
		t.Errorf("the file has %q, %v, want the pid", text, err)
	}
	want := fmt.Sprintf("%s: already running, pid %d", path, os.Getpid())
	if _, err := lockfile.Take(path); err == nil || err.Error() != want {
		t.Errorf("the second: %v, want %s", err, want)
	}
	first.Close()
	again, err := lockfile.Take(path)
	if err != nil {
		t.Fatalf("after the first has closed it: %v", err)
	}
	again.Close()
}

// Through a link, or in a file that others may write, the pid would go to another file
// or be somebody else's.
func TestTakeRefusesOtherFiles(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"symbolic link": func(path string) error { return os.Symlink(filepath.Join(t.TempDir(), "x"), path) },
		"directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"open to all":   func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"hard link": func(path string) error {
			other := filepath.Join(t.TempDir(), "x")
			if err := os.WriteFile(other, nil, 0o600); err != nil {
				return err
			}
			return os.Link(other, path)
		},
	} {
		path := filepath.Join(t.TempDir(), "lock")
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if f, err := lockfile.Take(path); err == nil {
			f.Close()
			t.Errorf("%s: it was locked", name)
		} else if !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error does not name the file: %v", name, err)
		}
	}
}
