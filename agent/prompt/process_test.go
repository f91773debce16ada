package prompt

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// line is /proc/PID/stat as proc_pid_stat(5) has it.
const line = "1234 (kubectl) S 99 1234 98 34823 1234 4194304 1 0 0 0 0 0 0 0 20 0 1 0 567890 8192 1 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"

func TestParseStat(t *testing.T) {
	got, err := parseStat([]byte(line))
	want := process{pid: 1234, name: "kubectl", parent: 99, group: 1234, session: 98, terminal: 34823, foreground: 1234, start: 567890}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, name := range []string{"", "a b", ") R 1 (", "((", "))", "a\nb", "\xff"} {
		got, err := parseStat([]byte(strings.Replace(line, "kubectl", name, 1)))
		want := want
		if want.name = name; err != nil || got != want {
			t.Errorf("name %q: got %+v, %v", name, got, err)
		}
	}
	for _, bad := range []string{
		"", "1234", "1234 (kubectl", "1234 kubectl) S", "(kubectl) S 99", "1234 (kubectl) S 99 1234\n",
		strings.Replace(line, "1234 (", "x (", 1), strings.Replace(line, " 99 ", " x ", 1), strings.Replace(line, "34823", "4294967296", 1),
		strings.Replace(line, "567890", "-1", 1), strings.Replace(line, " 98 ", " 99999999999 ", 1),
	} {
		if got, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
	none := strings.Replace(strings.Replace(line, "34823", "0", 1), "0 1234 4194304", "0 -1 4194304", 1)
	if got, err := parseStat([]byte(none)); err != nil || got.terminal != 0 || got.foreground != -1 {
		t.Errorf("without a terminal: got %+v, %v", got, err)
	}
	large := strings.Replace(line, "34823", "-2147448832", 1) // minor 524288, printed with its sign
	if got, err := parseStat([]byte(large)); err != nil || pathOf(got.terminal) != "/dev/pts/524288" {
		t.Errorf("large number: got %+v, %v", got, err)
	}
}

func FuzzParseStat(f *testing.F) {
	seeds := []string{line, "1 (a) b) Z 0", strings.Replace(line, "kubectl", ") S 1 1 1", 1), ""}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parseStat(text)
		if err != nil {
			return
		}
		if !strings.Contains(string(text), "("+p.name+")") {
			t.Errorf("%q has the name %q", text, p.name)
		}
		if path := pathOf(p.terminal); path != "" && !strings.HasPrefix(path, "/dev/") {
			t.Errorf("terminal %q", path)
		}
	})
}

// TestLookAtThisProcess compares with what the standard library knows.
func TestLookAtThisProcess(t *testing.T) {
	pid := int32(os.Getpid())
	p, err := look(pid)
	if err != nil || p.pid != pid || p.parent != int32(os.Getppid()) || p.group != int32(syscall.Getpgrp()) || p.start == 0 {
		t.Errorf("got %+v, %v", p, err)
	}
	if uid, err := uidOf(pid); err != nil || uid != uint32(os.Geteuid()) {
		t.Errorf("got uid %d, %v", uid, err)
	}
}

func TestParseUID(t *testing.T) {
	status := "Name:\tx\\nUid:\nUmask:\t0022\nUid:\t1000\t1001\t1002\t1003\nGid:\t1\t1\t1\t1\n"
	if uid, err := parseUID([]byte(status)); err != nil || uid != 1001 {
		t.Errorf("got %d, %v", uid, err)
	}
	for _, bad := range []string{"", "Name: x\n", "Uid:\t1\n", "Uid:\t1\tx\t1\t1\n", "Uid: 1 4294967296 1 1\n", "Uid: 1 -1 1 1\n"} {
		if uid, err := parseUID([]byte(bad)); err == nil {
			t.Errorf("%q is uid %d", bad, uid)
		}
	}
}

func FuzzParseUID(f *testing.F) {
	seeds := []string{"Uid:\t0\t0\t0\t0\n", "Name:\ta\nUid:\t1\t2\t3\t4\n", "Uid:\n", ""}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, status []byte) {
		if uid, err := parseUID(status); err == nil && !strings.Contains(string(status), fmt.Sprint(uid)[:1]) {
			t.Errorf("%q has uid %d", status, uid)
		}
	})
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
