package edit

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func put(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func appendLine(data []byte) ([]byte, error) { return append(data, "more\n"...), nil }

func TestFileKeepsOwnerModeAndLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test gives files away and has to run as root")
	}
	dir := t.TempDir()
	real := put(t, dir+"/real", "one\n")
	link := dir + "/config"
	if err := errors.Join(os.Chmod(real, 0o640), os.Chown(real, 1234, 4321), os.Symlink("real", link)); err != nil {
		t.Fatal(err)
	}
	if err := File(t.Context(), link, appendLine); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(real); err != nil || string(text) != "one\nmore\n" {
		t.Errorf("got %q, %v", text, err)
	}
	info, err := os.Lstat(real)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	if info.Mode() != 0o640 || owner.Uid != 1234 || owner.Gid != 4321 {
		t.Errorf("got mode %v, owner %d:%d", info.Mode(), owner.Uid, owner.Gid)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link: got %v, %v", info.Mode(), err)
	}
	wantFiles(t, dir, 2)
}

// wantFiles finds what a change has left behind.
func wantFiles(t *testing.T, dir string, want int) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) != want {
		t.Errorf("got %v, %v, want %d files", left, err, want)
	}
}

func TestFileLeavesAlone(t *testing.T) {
	dir := t.TempDir()
	path := put(t, dir+"/config", "one\n")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	for want, change := range map[error]func([]byte) ([]byte, error){
		no:  func([]byte) ([]byte, error) { return nil, no },
		nil: func(data []byte) ([]byte, error) { return data, nil },
	} {
		if err := File(t.Context(), path, change); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		after, err := os.Stat(path)
		if err != nil || !os.SameFile(before, after) {
			t.Errorf("the file was written: %v", err)
		}
	}
	wantFiles(t, dir, 1)
	if err := File(t.Context(), dir+"/missing", appendLine); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	if err := File(t.Context(), dir, appendLine); err == nil {
		t.Error("a directory was edited")
	}
}

// kubectl config makes the same lock.
func TestFileWaitsForTheLock(t *testing.T) {
	dir := t.TempDir()
	path := put(t, dir+"/real", "one\n")
	link := dir + "/link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, held := range []string{path, link} {
		lock := put(t, held+".lock", "")
		ctx, cancel := context.WithTimeout(t.Context(), 3*pollLock)
		err := File(ctx, link, appendLine)
		cancel()
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), filepath.Base(lock)) {
			t.Errorf("%s is locked: got %v", held, err)
		}
		if text, _ := os.ReadFile(path); string(text) != "one\n" {
			t.Errorf("%s is locked: it was written", held)
		}
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
	}
	err := File(t.Context(), path, func(data []byte) ([]byte, error) {
		if _, err := os.Stat(path + ".lock"); err != nil {
			t.Errorf("no lock while editing: %v", err)
		}
		return data, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, 2)
}

func TestFileTogether(t *testing.T) {
	path := put(t, t.TempDir()+"/config", "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := File(ctx, path, appendLine); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if text, err := os.ReadFile(path); err != nil || string(text) != strings.Repeat("more\n", 8) {
		t.Errorf("got %q, %v", text, err)
	}
}
