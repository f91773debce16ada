package prompt

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestLookAtThisProcess compares with what the standard library knows.
func TestLookAtThisProcess(t *testing.T) {
	pid := int32(os.Getpid())
	p, err := look(pid)
	if err != nil || p.PID != pid || p.Parent != int32(os.Getppid()) || p.Group != int32(syscall.Getpgrp()) || p.Start == 0 {
		t.Errorf("got %+v, %v", p, err)
	}
	if p, err := look(-1); err == nil {
		t.Errorf("got %+v", p)
	}
}

// TestDevptsOf reads what a container's process has over the machine's own.
func TestDevptsOf(t *testing.T) {
	const first = "26 24 0:24 / /dev/pts rw,relatime - devpts devpts rw,mode=600,ptmxmode=000\n"
	const second = "29 26 0:26 / /dev/pts rw,relatime - devpts devpts rw,mode=600,ptmxmode=000\n"
	const other = "30 26 0:27 / /dev/shm rw - tmpfs tmpfs rw\n"
	for text, want := range map[string]string{
		first: "0:24", first + second: "0:26", second + first + other: "0:24", other: "", "": "", "26 24\n": "",
	} {
		if got, found := devptsOf([]byte(text)); got != want || found != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", text, got, found, want)
		}
	}
}

func FuzzDevptsOf(f *testing.F) {
	seeds := []string{"26 24 0:24 / /dev/pts rw - devpts devpts rw\n", "1 2 3 4 /dev/pts", "\n\n", ""}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if device, found := devptsOf(text); found != (device != "") || strings.ContainsAny(device, " \n") {
			t.Errorf("%q: got %q, %v", text, device, found)
		}
	})
}
