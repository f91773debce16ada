package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// good is /proc/PID/stat as proc_pid_stat(5) has it.
const good = "1234 (kubectl) S 99 1235 98 34823 1236 4194304 1 0 0 0 0 0 0 0 20 0 1 0 567890 8192 1 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0\n"

func TestParseStat(t *testing.T) {
	want := Stat{
		PID: 1234, Name: "kubectl", State: 'S', Parent: 99, Group: 1235, Session: 98, Terminal: 34823, Foreground: 1236,
		Flags: 4194304, Start: 567890,
	}
	for _, c := range []struct {
		about, old, new string
		change          func(*Stat) // nil when the text is rejected
	}{
		{"as it is", "", "", func(*Stat) {}},
		{"name with parentheses", "kubectl", "a) S 1 (b", func(s *Stat) { s.Name = "a) S 1 (b" }},
		{"name with a newline", "kubectl", "a\n1 (x) S 2", func(s *Stat) { s.Name = "a\n1 (x) S 2" }},
		{"name of parentheses", "kubectl", "))((", func(s *Stat) { s.Name = "))((" }},
		{"name that is no UTF-8", "kubectl", "\xff", func(s *Stat) { s.Name = "\xff" }},
		{"no name", "kubectl", "", func(s *Stat) { s.Name = "" }},
		{"zombie", ") S", ") Z", func(s *Stat) { s.State = 'Z' }},
		{"no terminal", "34823 1236", "0 -1", func(s *Stat) { s.Terminal, s.Foreground = 0, -1 }},
		{"terminal with a sign", "34823", "-2147448832", func(s *Stat) { s.Terminal = 0x80008800 }},
		{"largest start", "567890", "18446744073709551615", func(s *Stat) { s.Start = 1<<64 - 1 }},
		{"start too large", "567890", "18446744073709551616", nil},
		{"start negative", "567890", "-1", nil},
		{"terminal too large", "34823", "4294967296", nil},
		{"session too large", " 98 ", " 99999999999 ", nil},
		{"parent is not a number", " 99 ", " x ", nil},
		{"flags are not a number", "4194304", "x", nil},
		{"pid is not a number", "1234 (", "x (", nil},
		{"pid is missing", "1234 (", "(", nil},
		{"no parentheses", "(kubectl)", "kubectl", nil},
		{"not opened", "(kubectl", "kubectl", nil},
		{"not closed", "kubectl)", "kubectl", nil},
		{"closed before it is opened", "(kubectl)", ")kubectl(", nil},
		{"cut short", good[strings.Index(good, " 567890"):], "", nil},
		{"empty", good, "", nil},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("%s: there is no %q", c.about, c.old)
		}
		got, err := ParseStat([]byte(strings.Replace(good, c.old, c.new, 1)))
		expected := Stat{}
		if c.change != nil {
			expected = want
			c.change(&expected)
		}
		if got != expected || (err == nil) != (c.change != nil) {
			t.Errorf("%s: got %+v, %v, want %+v", c.about, got, err, expected)
		}
	}
}

func TestParseUIDs(t *testing.T) {
	const status = "Name:\tUid: x\\nUid:\nUmask:\t0022\nUid:\t1000\t1001\t1002\t4294967295\nGid:\t5\t5\t5\t5\n"
	if got, err := ParseUIDs([]byte(status)); err != nil || got != (UIDs{1000, 1001, 1002, 1<<32 - 1}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{
		"", "Name: x\n", "uid:\t1\t1\t1\t1\n", " Uid:\t1\t1\t1\t1\n", "Uid:\t1\t1\t1\n", "Uid:\t1\t1\t1\t1\t1\n", "Uid:\t1\tx\t1\t1\n",
		"Uid:\t1\t1\t1\t-4\n", "Uid: 1 4294967296 1 1\n",
	} {
		if got, err := ParseUIDs([]byte(bad)); err == nil || got != (UIDs{}) {
			t.Errorf("%q: got %+v, %v, want an error", bad, got, err)
		}
	}
}

// TestThisProcess compares with what the standard library knows.
func TestThisProcess(t *testing.T) {
	pid := int32(os.Getpid())
	s, err := ReadStat(pid)
	if err != nil || s.PID != pid || s.Parent != int32(os.Getppid()) || s.Group != int32(syscall.Getpgrp()) || s.Start == 0 || s.Flags&KernelThread != 0 {
		t.Errorf("got %+v, %v", s, err)
	}
	text, err := exec.Command("id", "-u").Output()
	if err != nil {
		t.Fatal(err)
	}
	uids, err := ReadUIDs(pid)
	if err != nil || uids[0] != uint32(os.Getuid()) || uids[2] != uids[1] || fmt.Sprintln(uids.Effective()) != string(text) {
		t.Errorf("got %+v, %v, and id says %s", uids, err, text)
	}
}

func TestProcessThatIsNotThere(t *testing.T) {
	const pid = 1<<31 - 1 // above the kernel's limit
	if s, err := ReadStat(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %+v, %v", s, err)
	}
	if uids, err := ReadUIDs(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %+v, %v", uids, err)
	}
}

func TestReadFileBoundsTheFile(t *testing.T) {
	path := t.TempDir() + "/f"
	for size, fails := range map[int]bool{0: false, 1023: false, 1024: false, 5000: false, 5001: true, 100000: true} {
		want := strings.Repeat("x", size)
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFile(path, 5000)
		if (err != nil) != fails || !fails && string(got) != want {
			t.Errorf("%d bytes: got %d, %v, want failure %t", size, len(got), err, fails)
		}
	}
	if _, err := ReadFile(path+"x", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	seeds := []string{good, "1 (a) (b)) S 1", "", ")(", strings.Replace(good, "kubectl", ")\n(", 1), "Uid:\t0\t0\t0\t0\n", "Name:\ta\nUid:\t1\t2\t3\t4\n", "Uid:\n"}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := ParseStat(text); err == nil && !strings.Contains(string(text), "("+s.Name+")") {
			t.Errorf("%q gave the name %q", text, s.Name)
		}
		if uids, err := ParseUIDs(text); err == nil && !strings.Contains(string(text), fmt.Sprint(uids[2])[:1]) {
			t.Errorf("%q gave %+v", text, uids)
		}
	})
}
