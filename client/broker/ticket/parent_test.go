package ticket

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/peer"
	"holdfast/test/role"
)

// wantDenied checks that err is a denied error with a hint that says so much.
func wantDenied(t *testing.T, err error, fact, hint string) {
	t.Helper()
	e, ok := fault.AsError(err)
	if !ok || e.Kind != fault.Denied || !strings.Contains(e.Message, fact) || !strings.Contains(e.Hint, hint) {
		t.Errorf("got %#v, want a denied error with %q and the hint %q", err, fact, hint)
	}
}

func TestParentIsWhoRanThePlugin(t *testing.T) {
	l, path := role.Listen(t)
	kubectl := start(t, "plugin="+path, "wait")
	p := identify(t, l)
	got, err := Parent(p)
	if err != nil {
		t.Fatal(err)
	}
	own, err := readStat(kubectl.Pid())
	if err != nil {
		t.Fatal(err)
	}
	want := Process{UID: uint32(os.Geteuid()), PID: kubectl.Pid(), Start: own.start, Unit: p.Unit}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParentOfAnEndedPlugin(t *testing.T) {
	l, path := role.Listen(t)
	plugin := start(t, "connect="+path, "wait")
	p := identify(t, l)
	plugin.Kill()
	_, err := Parent(p)
	wantDenied(t, err, "the plugin (process", "run the plugin itself")
}

func TestParentThatEnded(t *testing.T) {
	l, path := role.Listen(t)
	kubectl := start(t, "plugin="+path, "wait")
	p := identify(t, l)
	kubectl.Kill()
	_, err := Parent(p)
	wantDenied(t, err, "has ended", "not in the background") // perhaps the plugin has too: its input did
}

// A subreaper of the same user adopts the plugin when its parent ends. In another
// session that shows; in the same one it cannot be told from a real parent.
func TestAdoptedPlugin(t *testing.T) {
	l, path := role.Listen(t)
	adopter := start(t, "subreaper", "session="+path, "wait")
	p := identify(t, l)
	_, err := Parent(p)
	wantDenied(t, err, "in another session", "not in the background")

	second := start(t, "subreaper", "forked="+path, "wait")
	p = identify(t, l)
	role.Until(t, "the process in between to end", func() bool {
		st, err := readStat(p.PID)
		return err == nil && st.ppid == second.Pid()
	})
	got, err := Parent(p)
	if err != nil || got.PID != second.Pid() {
		t.Errorf("got %+v, %v, want the adopter %d: the package comment says so", got, err, second.Pid())
	}
	adopter.Kill()
}

func TestParentIsTheShell(t *testing.T) {
	l, path := role.Listen(t)
	kubectl := start(t, "shell="+path, "wait")
	p := identify(t, l)
	got, err := Parent(p)
	if err != nil || got.PID == kubectl.Pid() {
		t.Fatalf("got %+v, %v, want the shell below %d", got, err, kubectl.Pid())
	}
}

// A plugin that has changed its user since it was started by root.
func TestParentOfAnotherUser(t *testing.T) {
	role.NeedRoot(t)
	l, path := role.Listen(t)
	start(t, "setuid=4321", "connect="+path, "wait")
	_, err := Parent(identify(t, l))
	wantDenied(t, err, "the plugin runs as uid 4321, its parent", "not through sudo")
}

func TestFits(t *testing.T) {
	good := stat{name: "kubectl", ppid: 7, session: 7, start: 100}
	child := stat{name: "plugin", ppid: 9, session: 7, start: 100}
	uids := [4]uint32{5, 5, 5, 5}
	cases := []struct {
		name, fact string
		change     func(own, child *stat, uids *[4]uint32)
	}{
		{"kernel thread", "is the kernel", func(own, _ *stat, _ *[4]uint32) { own.flags = kernelThread | 1 }},
		{"started after", "started after it", func(own, _ *stat, _ *[4]uint32) { own.start = 101 }},
		{"another session", "another session", func(_, child *stat, _ *[4]uint32) { child.session = 8 }},
		{"real uid", "uid 0", func(_, _ *stat, uids *[4]uint32) { uids[0] = 0 }},
		{"effective uid", "uid 0", func(_, _ *stat, uids *[4]uint32) { uids[1] = 0 }},
		{"saved uid", "uid 0", func(_, _ *stat, uids *[4]uint32) { uids[2] = 0 }},
		{"filesystem uid", "uid 0", func(_, _ *stat, uids *[4]uint32) { uids[3] = 0 }},
	}
	p := &process{Process: Process{UID: 5, PID: 9}, name: "kubectl"}
	if err := p.fits(good, child, uids); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		own, child, uids := good, child, uids
		c.change(&own, &child, &uids)
		t.Run(c.name, func(t *testing.T) { wantDenied(t, p.fits(own, child, uids), c.fact, "") })
	}
	wantDenied(t, notInit(stat{ppid: 0}), "another pid namespace", "")
	wantDenied(t, notInit(stat{ppid: 1}), "is init", "")
}

// The plugin's parent ends, and the plugin is given another, while the broker looks.
func TestParentThatChanges(t *testing.T) {
	l, path := role.Listen(t)
	start(t, "plugin="+path, "wait")
	p := identify(t, l)
	child, err := childOf(p)
	if err != nil {
		t.Fatal(err)
	}
	former := start(t, "say=ready", "wait")
	former.Line()
	child.ppid, child.start = former.Pid(), 1<<60
	stale := &process{Process: Process{UID: p.UID, PID: former.Pid()}, pidfd: -1}
	wantDenied(t, stale.inspect(p, child), "ended while the plugin asked", "")
}

func TestUnreadableIsDenied(t *testing.T) {
	wantDenied(t, unreadable("the plugin", 7, errors.New("no")), "cannot be told", "/proc/7")
	wantDenied(t, unreadable("the plugin", 7, peer.ErrGone), "has ended", "")
}

func TestParseStat(t *testing.T) {
	tail := " S 7 6 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 1 2\n"
	for name, text := range map[string]string{
		"plain": "9 (sh)" + tail, "parentheses": "9 (a) S 1 (b)" + tail, "newline": "9 (a\n) b)" + tail,
	} {
		got, err := parseStat([]byte(text))
		if err != nil || got.ppid != 7 || got.session != 5 || got.start != 12345 || got.flags != 4194560 {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	for _, text := range []string{"", "9", "9 (a", "9 )(" + tail, "9 (a) S 7", "9 (a) S x 6 5 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 9 1"} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

func TestParseUIDs(t *testing.T) {
	got, err := parseUIDs([]byte("Name:\tUid: x\nUmask:\t0022\nUid:\t1\t2\t3\t4\nGid:\t9\t9\t9\t9\n"))
	if want := [4]uint32{1, 2, 3, 4}; err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, text := range []string{"", "Uid:\t1\t2\t3\n", "Uid:\t1\t2\t3\t-4\n", " Uid:\t1\t2\t3\t4\n"} {
		if got, err := parseUIDs([]byte(text)); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestPrintable(t *testing.T) {
	if got, want := printable("a\x1b[2J\n\u00e9"), "a?[2J?\u00e9"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzParseStat(f *testing.F) {
	seeds := []string{"1 (a) S 7 6 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 1 2\n", "1 ()) ", "Uid:\t1\t2\t3\t4\n", ""}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseStat(text); err == nil && !strings.Contains(string(text), "("+s.name+")") {
			t.Errorf("got name %q from %q", s.name, text)
		}
		if uids, err := parseUIDs(text); err != nil && uids != [4]uint32{} && !strings.Contains(string(text), "Uid:") {
			t.Errorf("got %v from %q", uids, text)
		}
	})
}

// The real /proc as other programs read it.
func TestReadUIDsOfARealProcess(t *testing.T) {
	text, err := exec.Command("sh", "-c", "echo $PPID; id -u").Output()
	if err != nil {
		t.Fatal(err)
	}
	uids, err := readUIDs(int32(os.Getpid()))
	if err != nil || uids != [4]uint32{uint32(os.Getuid()), uint32(os.Geteuid()), uint32(os.Geteuid()), uint32(os.Geteuid())} {
		t.Errorf("got %v, %v; id says %s", uids, err, text)
	}
}
