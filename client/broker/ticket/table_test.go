package ticket

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/fault"
	"holdfast/internal/peer"
	"holdfast/test/role"
)

// plugin returns a process with a plugin, and the plugin as a peer.
func plugin(t *testing.T, before ...string) (*role.Process, *peer.Peer) {
	t.Helper()
	l, path := role.Listen(t)
	w := start(t, append(before, "plugin="+path, "wait")...)
	return w, identify(t, l)
}

func table(t *testing.T, o Options) *Table {
	t.Helper()
	table := New(o)
	t.Cleanup(table.Close)
	return table
}

// issue issues a ticket, which has to succeed, and returns its holder too.
func issue(t *testing.T, table *Table, p *peer.Peer, profile string) (Ticket, *Holder) {
	t.Helper()
	got, err := table.Issue(p, profile)
	if err != nil {
		t.Fatal(err)
	}
	h, err := table.Check(got.Token)
	if err != nil {
		t.Fatal(err)
	}
	return got, h
}

func TestIssueAndCheck(t *testing.T) {
	tickets := table(t, Options{})
	kubectl, p := plugin(t)
	open, before := pidfds(t), time.Now()
	got, h := issue(t, tickets, p, "prod")
	if claims, mac, _ := strings.Cut(strings.TrimPrefix(got.Token, Prefix), "."); claims == "" || len(mac) != 43 || !strings.HasPrefix(got.Token, Prefix) {
		t.Errorf("got the token %s, want the prefix, claims and a MAC of 256 bits", got.Token)
	}
	if life := got.Expires.Sub(before); life < 10*time.Minute-time.Second || life > 10*time.Minute+time.Second {
		t.Errorf("got %v to live, want 10m", life)
	}
	if h.Profile != "prod" || h.Process.PID != kubectl.Pid() || h.Alive() != nil {
		t.Errorf("got %+v", h)
	}
	again, same := issue(t, tickets, p, "prod")
	if again != got || same != h {
		t.Error("the same process got another ticket at once")
	}
	other, _ := issue(t, tickets, p, "test")
	if other.Token == got.Token || tickets.Count("prod") != 1 || tickets.Count("test") != 1 {
		t.Errorf("profiles share tickets: %d, %d", tickets.Count("prod"), tickets.Count("test"))
	}
	if n := pidfds(t) - open; n != 1 {
		t.Errorf("got %d pidfds for one process", n)
	}
	if tickets.ForgetAll(""); pidfds(t) != open {
		t.Error("a pidfd was left open")
	}
}

// pidfds counts the pidfds that this process has open.
func pidfds(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if target, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.Contains(target, "pidfd") {
			n++
		}
	}
	return n
}

func TestCheckRefuses(t *testing.T) {
	tickets := table(t, Options{})
	_, p := plugin(t)
	got, _ := issue(t, tickets, p, "prod")
	other := table(t, Options{})
	for name, token := range map[string]string{
		"empty": "", "prefix alone": Prefix, "cut": got.Token[:len(got.Token)-1], "longer": got.Token + "A",
		"other case": strings.ToUpper(got.Token), "without prefix": strings.TrimPrefix(got.Token, Prefix), "long": strings.Repeat("x", 1<<20),
	} {
		_, err := tickets.Check(token)
		t.Run(name, func(t *testing.T) {
			wantDenied(t, err, "this broker did not issue the ticket", "run the command again")
		})
	}
	_, err := other.Check(got.Token)
	wantDenied(t, err, "did not issue the ticket", "")
}

func TestTheProcessEnds(t *testing.T) {
	tickets := table(t, Options{})
	kubectl, p := plugin(t)
	got, h := issue(t, tickets, p, "prod")
	kubectl.Kill()
	_, err := tickets.Check(got.Token)
	wantDenied(t, err, "has ended", "not through a shell")
	wantDenied(t, h.Alive(), "has ended", "not through a shell")
	tickets.tick()
	if n := tickets.Count("prod"); n != 0 || len(tickets.processes) != 0 {
		t.Errorf("got %d tickets, %d processes after the sweep", n, len(tickets.processes))
	}
	wantDenied(t, h.Alive(), "expired or was forgotten", "")
}

func TestExpiry(t *testing.T) {
	tickets := table(t, Options{Lifetime: 50 * time.Millisecond})
	_, p := plugin(t)
	got, err := tickets.Issue(p, "prod")
	if err != nil {
		t.Fatal(err)
	}
	// No read brings it about.
	role.Until(t, "expired tickets leave", func() bool {
		tickets.mu.Lock()
		defer tickets.mu.Unlock()
		return len(tickets.holders) == 0 && len(tickets.processes) == 0
	})
	_, err = tickets.Check(got.Token)
	wantDenied(t, err, "expired", "")
}

func TestExpiredByEitherClock(t *testing.T) {
	now := time.Now()
	h := &Holder{}
	h.expireAt(now.Add(time.Minute))
	if h.expired(now) || !h.expired(now.Add(time.Minute)) {
		t.Error("a ticket lives until it expires")
	}
	h.wall = now.Round(0) // as after a sleep of the machine: the wall clock alone has gone on
	if !h.expired(now) {
		t.Error("the ticket survives a sleep")
	}
	h.expires, h.wall = now, now.Round(0).Add(time.Hour) // as after the clock was set back
	if !h.expired(now) {
		t.Error("the ticket survives a clock that was set back")
	}
}

func TestRenewedAfterHalfOfItsLife(t *testing.T) {
	tickets := table(t, Options{Lifetime: time.Hour})
	_, p := plugin(t)
	first, h := issue(t, tickets, p, "prod")
	h.expireAt(time.Now().Add(29 * time.Minute))
	second, _ := issue(t, tickets, p, "prod")
	if second.Token == first.Token {
		t.Error("got the old ticket in the second half of its life")
	}
	if _, err := tickets.Check(first.Token); err != nil {
		t.Errorf("the old ticket: %v, want it to live on", err)
	}
}

func TestForget(t *testing.T) {
	tickets := table(t, Options{})
	_, p := plugin(t)
	tokens := map[string]string{}
	for _, profile := range []string{"a", "b", "c"} {
		got, _ := issue(t, tickets, p, profile)
		tokens[profile] = got.Token
	}
	if !tickets.Has(p.UID) || tickets.Has(p.UID+1) {
		t.Errorf("uid %d has a ticket: %v, the next one: %v", p.UID, tickets.Has(p.UID), tickets.Has(p.UID+1))
	}
	holder, err := tickets.Check(tokens["a"])
	if err != nil || !tickets.Lives(holder.Process) || tickets.Lives(Process{UID: p.UID, PID: holder.Process.PID, Start: 1}) {
		t.Errorf("%v: process %+v is not known by its pid and start time", err, holder.Process)
	}
	tickets.Forget("a", p.UID+1)
	if tickets.Count("a") != 1 {
		t.Error("forgot another user's ticket")
	}
	tickets.Forget("a", p.UID)
	tickets.ForgetAll("b")
	if got := fmt.Sprint(tickets.Count("a"), tickets.Count("b"), tickets.Count("c")); got != "0 0 1" {
		t.Errorf("got %s", got)
	}
	_, err = tickets.Check(tokens["a"])
	wantDenied(t, err, "did not issue the ticket", "")
	tickets.ForgetAll("")
	if tickets.Lives(holder.Process) {
		t.Error("a process without tickets is known")
	}
	_, err = tickets.Check(tokens["c"])
	wantDenied(t, err, "did not issue the ticket", "")
	if len(tickets.processes) != 0 {
		t.Error("a process without tickets is kept")
	}
	if fresh, _ := issue(t, tickets, p, "a"); fresh.Token == tokens["a"] {
		t.Error("a forgotten ticket came back")
	}
}

func TestLimits(t *testing.T) {
	cases := map[string]Options{
		"per uid": {PerUID: 2}, "total": {Total: 2}, "processes per uid": {ProcessesPerUID: 1}, "processes": {Processes: 1},
	}
	for name, o := range cases {
		t.Run(name, func(t *testing.T) {
			tickets := table(t, o)
			first, p := plugin(t)
			issue(t, tickets, p, "a")
			issue(t, tickets, p, "b")
			_, q := plugin(t)
			_, err := tickets.Issue(q, "a")
			if e, ok := fault.AsError(err); !ok || e.Kind != fault.Busy || e.Hint == "" || e.RetryAfter == 0 {
				t.Errorf("got %v, want busy with a hint", err)
			}
			first.Kill() // its tickets make room
			issue(t, tickets, q, "a")
		})
	}
}

// When the only ticket of a process has expired and there is no room, the sweep
// closes its pidfd; the new ticket needs an open one.
func TestRoomMadeByTheProcessItself(t *testing.T) {
	tickets := table(t, Options{Total: 1, Lifetime: time.Hour})
	_, p := plugin(t)
	_, h := issue(t, tickets, p, "a")
	h.expireAt(time.Now().Add(-time.Second))
	if _, again := issue(t, tickets, p, "a"); again.Alive() != nil {
		t.Error("the new ticket's process is not held")
	}
}

func TestClosedTable(t *testing.T) {
	tickets := New(Options{})
	_, p := plugin(t)
	got, h := issue(t, tickets, p, "a")
	tickets.Close()
	_, err := tickets.Check(got.Token)
	wantDenied(t, err, "did not issue the ticket", "")
	wantDenied(t, h.Alive(), "forgotten", "")
	_, err = tickets.Issue(p, "a")
	wantDenied(t, err, "issues no more tickets", "")
}

// A pid that was given to another process: the table has a pidfd of the old one,
// which has ended, whatever the pid says now.
func TestPIDReuse(t *testing.T) {
	tickets := table(t, Options{})
	kubectl, p := plugin(t)
	got, h := issue(t, tickets, p, "prod")
	successor, q := plugin(t)
	pidfd := h.process.pidfd
	kubectl.Kill()
	// From here the table is as it would be had the successor got the old pid.
	tickets.processes[successor.Pid()], h.process.PID = h.process, successor.Pid()
	h.Process.PID = successor.Pid()
	delete(tickets.processes, kubectl.Pid())
	_, err := tickets.Check(got.Token)
	wantDenied(t, err, "has ended", "not through a shell")
	fresh, other := issue(t, tickets, q, "prod")
	if fresh.Token == got.Token || other.process == h.process || len(tickets.processes) != 1 {
		t.Error("the successor got the ticket of the process that had its pid")
	}
	if h.process.pidfd == pidfd {
		t.Error("the pidfd of the old process is still open")
	}
}

// Nothing that the table keeps is a token.
func TestTokensAreNotKept(t *testing.T) {
	tickets := table(t, Options{})
	_, p := plugin(t)
	got, h := issue(t, tickets, p, "prod")
	for what, text := range map[string]string{"table": fmt.Sprintf("%#v", tickets), "holder": fmt.Sprintf("%#v %+v", h, h)} {
		if strings.Contains(text, got.Token) || bytes.Contains([]byte(text), []byte(got.Token[len(Prefix):])) {
			t.Errorf("the %s holds the token", what)
		}
	}
}

func TestEndedFailsOnBadDescriptors(t *testing.T) {
	gone, err := ended([]int{1 << 20})
	if err == nil && !gone[0] {
		t.Error("a descriptor that is not open counts as a living process")
	}
	if _, err := ended(make([]int, 1<<21)); !errors.Is(err, unix.EINVAL) && err != nil {
		t.Errorf("got %v", err)
	}
}
