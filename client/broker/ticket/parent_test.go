package ticket

import (
	"errors"
	"os"
	"strings"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/peer"
	"holdfast/internal/proc"
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

func TestParentRanThePlugin(t *testing.T) {
	l, path := role.Listen(t)
	kubectl := start(t, "plugin="+path, "wait")
	p := identify(t, l)
	got, err := Parent(p)
	if err != nil {
		t.Fatal(err)
	}
	own, err := proc.ReadStat(kubectl.Pid())
	if err != nil {
		t.Fatal(err)
	}
	want := Process{UID: uint32(os.Geteuid()), PID: kubectl.Pid(), Start: own.Start, Unit: p.Unit}
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
		st, err := proc.ReadStat(p.PID)
		return err == nil && st.Parent == second.Pid()
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
	good := proc.Stat{Name: "kubectl", Parent: 7, Session: 7, Start: 100}
	child := proc.Stat{Name: "plugin", Parent: 9, Session: 7, Start: 100}
	uids := proc.UIDs{5, 5, 5, 5}
	cases := []struct {
		name, fact string
		change     func(own, child *proc.Stat, uids *proc.UIDs)
	}{
		{"kernel thread", "is the kernel", func(own, _ *proc.Stat, _ *proc.UIDs) { own.Flags = proc.KernelThread | 1 }},
		{"started after", "started after it", func(own, _ *proc.Stat, _ *proc.UIDs) { own.Start = 101 }},
		{"another session", "another session", func(_, child *proc.Stat, _ *proc.UIDs) { child.Session = 8 }},
		{"real uid", "uid 0", func(_, _ *proc.Stat, uids *proc.UIDs) { uids[0] = 0 }},
		{"effective uid", "uid 0", func(_, _ *proc.Stat, uids *proc.UIDs) { uids[1] = 0 }},
		{"saved uid", "uid 0", func(_, _ *proc.Stat, uids *proc.UIDs) { uids[2] = 0 }},
		{"filesystem uid", "uid 0", func(_, _ *proc.Stat, uids *proc.UIDs) { uids[3] = 0 }},
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
	wantDenied(t, notInit(proc.Stat{Parent: 0}), "another pid namespace", "")
	wantDenied(t, notInit(proc.Stat{Parent: 1}), "is init", "")
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
	child.Parent, child.Start = former.Pid(), 1<<60
	stale := &process{Process: Process{UID: p.UID, PID: former.Pid()}, pidfd: -1}
	wantDenied(t, stale.inspect(p, child), "ended while the plugin asked", "")
}

func TestUnreadableIsDenied(t *testing.T) {
	wantDenied(t, unreadable("the plugin", 7, errors.New("no")), "cannot be identified", "/proc/7")
	wantDenied(t, unreadable("the plugin", 7, peer.ErrGone), "has ended", "")
}
