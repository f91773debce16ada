package ticket

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"holdfast/internal/peer"
)

// restarted returns the table of the next broker, and the identities that it restored.
func restarted(t *testing.T, key string) (*Table, *[]peer.Identity) {
	t.Helper()
	var plugins []peer.Identity
	next := table(t, Options{Restored: func(_ Process, plugin peer.Identity, _ time.Time) { plugins = append(plugins, plugin) }})
	next.UseKey([]byte(key))
	return next, &plugins
}

func TestTicketsOutliveTheTable(t *testing.T) {
	before := table(t, Options{})
	before.UseKey([]byte("key"))
	kubectl, p := plugin(t)
	got, old := issue(t, before, p, "prod")
	before.Close()

	next, plugins := restarted(t, "key")
	open := pidfds(t)
	h, err := next.Check(got.Token)
	if err != nil {
		t.Fatal(err)
	}
	if h.Process != old.Process || h.Profile != "prod" || h.wall.Sub(old.wall).Abs() > time.Millisecond {
		t.Errorf("got %+v, want %+v", h.Process, old.Process)
	}
	if len(*plugins) != 1 || (*plugins)[0].PID != p.PID {
		t.Errorf("restored for %+v, want the plugin", *plugins)
	}
	if again, err := next.Check(got.Token); again != h || err != nil || len(*plugins) != 1 {
		t.Errorf("the second time: %v, %v, %d identities", again, err, len(*plugins))
	}
	if n := pidfds(t) - open; n != 1 {
		t.Errorf("%d descriptors for one process", n)
	}
	kubectl.Kill()
	if _, err := next.Check(got.Token); err == nil {
		t.Error("accepted after the process has ended")
	}
}

func TestTicketsThatDoNotOutliveTheTable(t *testing.T) {
	before := table(t, Options{})
	before.UseKey([]byte("key"))
	kubectl, p := plugin(t)
	got, _ := issue(t, before, p, "prod")
	next := func(change func(*Table)) *Table {
		after, _ := restarted(t, "key")
		change(after)
		return after
	}
	strange, _ := restarted(t, "another key")
	other := func(old, replacement string) string {
		changed := strings.Replace(got.Token, old, replacement, 1)
		if changed == got.Token {
			t.Fatalf("%s is not in the token", old)
		}
		return changed
	}
	for name, test := range map[string]struct {
		table *Table
		token string
	}{
		"another key":          {strange, got.Token},
		"no kept key":          {table(t, Options{}), got.Token},
		"other claims":         {next(func(*Table) {}), other(Prefix+"ey", Prefix+"eyA")},
		"no MAC":               {next(func(*Table) {}), got.Token[:strings.Index(got.Token, ".")]},
		"no prefix":            {next(func(*Table) {}), strings.TrimPrefix(got.Token, Prefix)},
		"forgotten for a uid":  {next(func(a *Table) { a.Forget("prod", p.UID) }), got.Token},
		"forgotten profile":    {next(func(a *Table) { a.ForgetAll("prod") }), got.Token},
		"forgotten altogether": {next(func(a *Table) { a.ForgetAll("") }), got.Token},
		"closed":               {next(func(a *Table) { a.Close() }), got.Token},
		"forgotten by its own": {func() *Table { before.ForgetAll("prod"); return before }(), got.Token},
	} {
		if _, err := test.table.Check(test.token); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := next(func(a *Table) { a.Forget("stage", p.UID); a.Forget("prod", p.UID+1) }).Check(got.Token); err != nil {
		t.Errorf("tickets of others were forgotten: %v", err)
	}
	kubectl.Kill()
	if _, err := next(func(*Table) {}).Check(got.Token); err == nil {
		t.Error("accepted after the process has ended")
	}
}

// A ticket is forgotten while its process is looked up.
func TestForgottenWhileRestored(t *testing.T) {
	before := table(t, Options{})
	before.UseKey([]byte("key"))
	_, p := plugin(t)
	got, _ := issue(t, before, p, "prod")
	next, _ := restarted(t, "key")
	next.mu.Lock()
	c, encoded := next.verify(got.Token)
	next.mu.Unlock()
	if c == nil {
		t.Fatal("the ticket is not accepted")
	}
	next.ForgetAll("prod")
	if h := next.enter(c, encoded, find(c.Process)); h != nil {
		t.Error("a forgotten ticket was entered")
	}
}

// A later process that has the pid of the one that a ticket was issued to is not that
// process, and neither is one of another user.
func TestRestoredForOneProcess(t *testing.T) {
	_, p := plugin(t)
	got, _ := issue(t, table(t, Options{}), p, "prod")
	next, _ := restarted(t, "key")
	check := func(change func(*Process)) error {
		c := claims{Table: "before", Process: got.Process, Plugin: &p.Identity, Profile: "prod", Expires: got.Expires}
		change(&c.Process)
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		encoded := base64.RawURLEncoding.EncodeToString(text)
		_, err = next.Check(Prefix + encoded + "." + next.mac(encoded))
		return err
	}
	for name, change := range map[string]func(*Process){
		"a later start": func(p *Process) { p.Start++ },
		"another uid":   func(p *Process) { p.UID++ },
		"no process":    func(p *Process) { p.PID = 1<<22 + 1 },
	} {
		if check(change) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := check(func(*Process) {}); err != nil {
		t.Errorf("the process itself: %v", err)
	}
}
