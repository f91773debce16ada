package peer

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast/test/role"

	"golang.org/x/sys/unix"
)

const goodStat = "42 (sh) S 7 42 42 0 -1 4194304 100 0 0 0 1 2 3 4 20 0 1 0 987654 2486272 256 18446744073709551615\n"

func TestParseStat(t *testing.T) {
	cases := []struct {
		about, old, new string
		want            stat
		fails           bool
	}{
		{"as it is", "", "", stat{"sh", 7, 987654}, false},
		{"name with parentheses", "(sh)", "(a) S 1 (b)", stat{"a) S 1 (b", 7, 987654}, false},
		{"name with a newline", "(sh)", "(a\n1 (x) S 2)", stat{"a\n1 (x) S 2", 7, 987654}, false},
		{"no name", "(sh)", "()", stat{"", 7, 987654}, false},
		{"largest start", "987654", "18446744073709551615", stat{"sh", 7, 18446744073709551615}, false},
		{"start too large", "987654", "18446744073709551616", stat{}, true},
		{"start negative", "987654", "-1", stat{}, true},
		{"parent is no number", " 7 ", " x ", stat{}, true},
		{"no parentheses", "(sh)", "sh", stat{}, true},
		{"closed before it is opened", "(sh)", ")sh(", stat{}, true},
		{"cut short", " 987654 2486272 256 18446744073709551615\n", "", stat{}, true},
		{"empty", goodStat, "", stat{}, true},
	}
	for _, c := range cases {
		got, err := parseStat([]byte(strings.Replace(goodStat, c.old, c.new, 1)))
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: got %+v, %v, want %+v, failure %t", c.about, got, err, c.want, c.fails)
		}
	}
}

func TestParseEffectiveUID(t *testing.T) {
	const good = "Name:\tsh\nUmask:\t0022\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t5\t5\t5\n"
	cases := []struct {
		about, old, new string
		want            uint32
		fails           bool
	}{
		{"as it is", "", "", 1001, false},
		{"name looks like uids", "sh", `Uid:\n`, 1001, false},
		{"no line", "Uid:", "uid:", 0, true},
		{"three uids", "\t1003", "", 0, true},
		{"no number", "1001", "x", 0, true},
		{"too large", "1001", "4294967296", 0, true},
	}
	for _, c := range cases {
		got, err := parseEffectiveUID([]byte(strings.Replace(good, c.old, c.new, 1)))
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: got %d, %v, want %d, failure %t", c.about, got, err, c.want, c.fails)
		}
	}
}

func TestReadAllBoundsTheFile(t *testing.T) {
	path := t.TempDir() + "/f"
	for size, fails := range map[int]bool{0: false, 1023: false, 1024: false, 5000: false, 5001: true, 100000: true} {
		want := strings.Repeat("x", size)
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readAll(path, 5000)
		if (err != nil) != fails || !fails && string(got) != want {
			t.Errorf("%d bytes: got %d, %v, want failure %t", size, len(got), err, fails)
		}
	}
	if _, err := readAll(path+"x", 10); err == nil {
		t.Error("a missing file: got no error")
	}
}

func TestDescribe(t *testing.T) {
	l, path := role.Listen(t)
	client := start(t, nil, "name=evil\x1b[2K\n\u202efoo", "connect="+path, "say=ready", "wait")
	client.Expect("ready")
	d := identify(t, l).Describe()
	if len(d.Chain) < 2 || d.Chain[0].PID != client.Pid() || d.Chain[1].PID != int32(os.Getpid()) {
		t.Fatalf("got chain %+v, want %d, its parent %d, and so on", d.Chain, client.Pid(), os.Getpid())
	}
	if got := d.Chain[0].Name; got != "evil?[2K??foo" {
		t.Errorf("got name %q, want the unprintable replaced", got)
	}
	if want := role.Program(t); d.Executable != want {
		t.Errorf("got executable %q, want %q", d.Executable, want)
	}
	if !strings.HasSuffix(d.String(), " > evil?[2K??foo") {
		t.Errorf("got %q, want the peer last", d)
	}
}

func FuzzParseStat(f *testing.F) {
	seeds := []string{goodStat, "1 (a) (b)) S 1", "", ")(", strings.Replace(goodStat, "sh", ")\n(", 1)}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseStat(text)
		if err == nil && !strings.Contains(string(text), "("+s.name+")") {
			t.Errorf("%q gave the name %q", text, s.name)
		}
		if _, err := parseEffectiveUID(text); err == nil && !strings.Contains(string(text), "Uid:") {
			t.Errorf("%q gave a uid", text)
		}
	})
}

func TestUnlessHidden(t *testing.T) {
	for err, hidden := range map[error]bool{
		unix.ENOENT: true, unix.ESRCH: true, unix.EACCES: true, unix.EPERM: true,
		unix.EMFILE: false, unix.ENFILE: false, unix.ENOMEM: false, unix.EIO: false,
	} {
		if got := unlessHidden(fmt.Errorf("/proc/1/stat: %w", err)); (got == nil) != hidden {
			t.Errorf("%v: got %v, want hidden %t", err, got, hidden)
		}
	}
}

func TestProcessThatIsNotThere(t *testing.T) {
	const pid = 1<<31 - 1 // above the kernel's limit
	if start, err := startTime(pid); start != 0 || err != nil {
		t.Errorf("start time: got %d, %v, want 0", start, err)
	}
	if unit, err := systemUnit(pid); unit != "" || err != nil {
		t.Errorf("unit: got %q, %v, want none", unit, err)
	}
}
