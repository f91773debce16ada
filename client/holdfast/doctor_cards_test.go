package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// put writes a file of a made-up machine.
func put(t *testing.T, m machine, path, text string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(m.path(path)), 0o700))
	check(t, os.WriteFile(m.path(path), []byte(text), 0o600))
}

// library is the library of pcscd's clients, as Debian installs it.
const library = "/usr/lib/x86_64-linux-gnu/libpcsclite.so.1"

// withReaders makes a machine with pcscd and a pinentry, and an agent that uses cards.
func withReaders(t *testing.T, cards ...agentwire.Card) (*clienttest.Agent, machine) {
	t.Helper()
	agent, _ := withCards(t, cards...)
	agent.Status.Devices = append(agent.Status.Devices, agentwire.Device{Backend: "piv", Device: "piv", State: "absent", Reason: "there is no card reader"})
	m := healthy(t)
	put(t, m, "/usr/sbin/pcscd", "")
	put(t, m, "/usr/bin/pinentry-curses", "")
	put(t, m, "/run/pcscd/pcscd.comm", "")
	put(t, m, library, "")
	return agent, m
}

// onCard puts a key of the agent's on a card.
func onCard(agent *clienttest.Agent, serial uint32) {
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	agent.Change("alice", func(k *agentwire.Key) { k.Backend, k.Place = "piv", &agentwire.Place{Card: serial, Slot: "9a"} })
}

func (f findings) hints() string {
	var all []string
	for _, one := range f {
		all = append(all, one.Hint)
	}
	return strings.Join(all, "\n")
}

func TestDoctorCards(t *testing.T) {
	card := clienttest.NewCard(7)
	card.Notes = []agentwire.Notice{
		{Message: "the PIN is the factory default, which is public", Hint: "holdfast piv setup --card 7", Next: &fault.Next{Do: fault.SetUpCard, Card: 7}},
		{Message: "firmware 5.4.3 leaks ECDSA keys", Hint: "replace it"},
	}
	agent, m := withReaders(t, card)
	onCard(agent, 7)
	found, code := examineAt(agent.Socket, m)
	if code != exitDone {
		t.Errorf("got code %d and %+v", code, found)
	}
	for _, want := range [][3]string{
		{stateOK, "card 7", "in Yubico YubiKey CCID 07 00, firmware 5.7.1; PIN: 3 tries left"},
		{stateNote, "card 7", "the PIN is the factory default"}, {stateNote, "card 7", "leaks ECDSA keys"}, {stateOK, "pinentry", "/usr/bin/pinentry-curses"},
	} {
		if !found.has(want[0], want[1], want[2]) {
			t.Errorf("nothing %s about %s says %q: %+v", want[0], want[1], want[2], found)
		}
	}
	if !strings.Contains(found.hints(), "holdfast piv setup --card 7") || slices.ContainsFunc(found, func(one finding) bool { return one.Subject == "pcscd" }) {
		t.Errorf("got %+v", found)
	}
}

// A cardCase starts from a machine on which cards work, with a key on one.
type cardCase struct {
	spoil                      func(t *testing.T, agent *clienttest.Agent, m machine)
	state, subject, text, hint string
	code                       int
}

func (c cardCase) run(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	t.Setenv("GNUPGHOME", "")
	agent, m := withReaders(t, clienttest.NewCard(7))
	onCard(agent, 7)
	c.spoil(t, agent, m)
	found, code := examineAt(agent.Socket, m)
	if !found.has(c.state, c.subject, c.text) || code != c.code || !strings.Contains(found.hints(), c.hint) {
		t.Errorf("got code %d and %+v, want %d and something %s that says %q, with hint %q", code, found, c.code, c.state, c.text, c.hint)
	}
	wantHints(t, found)
}

// failing makes ListCards fail.
func failing(kind fault.Kind, message string, next fault.Step) func(*testing.T, *clienttest.Agent, machine) {
	return func(_ *testing.T, a *clienttest.Agent, _ machine) {
		a.Fail(agentwire.ListCards, &fault.Error{Kind: kind, Message: message, Next: fault.Next{Do: next}})
	}
}

func TestDoctorPCSCD(t *testing.T) {
	stopped := failing(fault.DeviceAbsent, "pcscd is not running", fault.StartPCSCD)
	refused := failing(fault.DeviceAbsent, "pcscd does not let this user use cards", fault.AllowPCSCD)
	for name, test := range map[string]cardCase{
		"pcscd not installed": {func(t *testing.T, a *clienttest.Agent, m machine) {
			check(t, os.Remove(m.path("/usr/sbin/pcscd")))
			stopped(t, a, m)
		}, stateBad, "pcscd", "is not installed", "apt install pcscd", 1},
		"no library": {func(t *testing.T, a *clienttest.Agent, m machine) {
			check(t, os.Remove(m.path(library)))
			failing(fault.DeviceFailed, "the process that speaks to the card ended", "")(t, a, m)
		}, stateBad, "pcscd", "libpcsclite.so.1", "apt install libpcsclite1", 1},
		"pcscd stopped": {func(t *testing.T, a *clienttest.Agent, m machine) {
			check(t, os.Remove(m.path("/run/pcscd/pcscd.comm")))
			stopped(t, a, m)
		}, stateBad, "pcscd", "there is no /run/pcscd/pcscd.comm", "systemctl enable --now pcscd.socket", 1},
		"pcscd unreachable": {stopped,
			stateBad, "cards", "pcscd is not running", "install pcscd", 1},
		"polkit and a user's agent": {refused, stateBad, "cards", "polkit refuses it", "rather than by ssh", 1},
		"polkit and the machine's agent": {func(t *testing.T, a *clienttest.Agent, m machine) {
			a.Status.Mode = "system"
			refused(t, a, m)
		}, stateBad, "cards", "polkit refuses it", "of the holdfast package lets the agent in: install it", 1},
		"polkit in spite of the rule": {func(t *testing.T, a *clienttest.Agent, m machine) {
			a.Status.Mode = "system"
			put(t, m, "/usr/share/polkit-1/rules.d/holdfast.rules", "")
			refused(t, a, m)
		}, stateBad, "cards", "polkit refuses it", "does the agent run as the user holdfast?", 1},
		"cards refused": {failing(fault.Denied, "not you", fault.Unlock), stateBad, "cards", "not you", "holdfast unlock NAME", 1},
	} {
		t.Run(name, test.run)
	}
}

func TestDoctorCardFaults(t *testing.T) {
	for name, test := range map[string]cardCase{
		"no reader": {func(t *testing.T, a *clienttest.Agent, m machine) { a.Cards = nil }, stateOK, "cards", "none is in any reader", "", 0},
		"its card elsewhere": {func(t *testing.T, a *clienttest.Agent, m machine) { a.Cards[0].Serial = 8 },
			stateNote, "card 7", "it is in no reader; on it: alice", "insert it to use the key", 0},
		"its PIN blocked": {func(t *testing.T, a *clienttest.Agent, m machine) { cardTries(a, 0) },
			stateBad, "card 7", "PIN: blocked", "holdfast piv unblock --card 7", 1},
		"its PIN all but blocked": {func(t *testing.T, a *clienttest.Agent, m machine) { cardTries(a, 1) },
			stateBad, "card 7", "PIN: 1 try left", "holdfast piv unblock --card 7", 1},
		"scdaemon past pcscd": {func(t *testing.T, a *clienttest.Agent, m machine) {
			a.Cards = nil
			put(t, m, "/sys/bus/usb/devices/1-4/idVendor", "1050\n")
			put(t, m, "/proc/4711/comm", "scdaemon\n")
		}, stateNote, "cards", "scdaemon (gpg) keeps it from pcscd", "put disable-ccid and pcsc-shared into", 0},
		"no driver": {func(t *testing.T, a *clienttest.Agent, m machine) {
			a.Cards = nil
			put(t, m, "/sys/bus/usb/devices/1-4/idVendor", "1050\n")
		}, stateNote, "cards", "pcscd does not see it", "apt install libccid", 0},
		"in use by scdaemon": {func(t *testing.T, a *clienttest.Agent, m machine) {
			a.Cards[0].State, a.Cards[0].Reason, a.Cards[0].Next = "busy", "the reader is in use by scdaemon", &fault.Next{Do: fault.ShareCard}
			put(t, m, "/home/me/.gnupg/scdaemon.conf", "# mine\npcsc-shared\n")
		}, stateBad, "card 7", "in use by scdaemon", "put disable-ccid into ~/.gnupg/scdaemon.conf", 1},
		"in use in spite of scdaemon.conf": {func(t *testing.T, a *clienttest.Agent, m machine) {
			a.Cards[0].State, a.Cards[0].Reason = "busy", "the reader is in use by another program"
			put(t, m, "/proc/4711/comm", "scdaemon\n")
			put(t, m, "/home/me/.gnupg/scdaemon.conf", "pcsc-shared\n  disable-ccid")
		}, stateBad, "card 7", "in use by another program", "gpgconf --kill scdaemon has it read", 1},
		"in use by something else": {func(t *testing.T, a *clienttest.Agent, m machine) {
			a.Cards[0].State, a.Cards[0].Reason, a.Cards[0].Hint = "busy", "the reader is in use by another program", "end it"
		}, stateBad, "card 7", "in use by another program", "end it", 1},
		"no PIV card": {func(t *testing.T, a *clienttest.Agent, m machine) {
			a.Cards[0] = agentwire.Card{Reader: "R", State: "absent", Reason: "the card has no PIV", Hint: "use another", Notes: []agentwire.Notice{}, Slots: []agentwire.CardSlot{}}
		}, stateNote, "reader", "the card has no PIV", "use another", 0},
		"a wedged card": {func(t *testing.T, a *clienttest.Agent, m machine) {
			a.Cards[0].State, a.Cards[0].Reason, a.Cards[0].Notes = "wedged", "no answer", []agentwire.Notice{{Message: "no answer"}}
		}, stateBad, "card 7", "it is wedged: no answer", "take it out", 1},
		"no pinentry": {func(t *testing.T, a *clienttest.Agent, m machine) {
			check(t, os.Remove(m.path("/usr/bin/pinentry-curses")))
		},
			stateNote, "pinentry", "no pinentry is installed", "apt install pinentry-curses", 0},
	} {
		t.Run(name, test.run)
	}
}

// A user without a key on a card does not need the programs for cards.
func TestDoctorCardsUnused(t *testing.T) {
	agent, m := withReaders(t)
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	check(t, os.Remove(m.path("/usr/sbin/pcscd")))
	agent.Fail(agentwire.ListCards, &fault.Error{Kind: fault.DeviceAbsent, Message: "pcscd is not running"})
	if found, code := examineAt(agent.Socket, m); code != exitDone || !found.has(stateNote, "pcscd", "is not installed") {
		t.Errorf("got code %d and %+v", code, found)
	}
}

// An agent that has only cards, and can use none, is of no use.
func TestDoctorOnlyCards(t *testing.T) {
	agent, m := withReaders(t)
	agent.Status.Devices = []agentwire.Device{{Backend: "piv", Device: "piv", State: "absent", Reason: "pcscd is not running", Next: &fault.Next{Do: fault.StartPCSCD}}}
	check(t, os.Remove(m.path("/usr/sbin/pcscd")))
	agent.Fail(agentwire.ListCards, &fault.Error{Kind: fault.DeviceAbsent, Message: "pcscd is not running", Next: fault.Next{Do: fault.StartPCSCD}})
	if found, code := examineAt(agent.Socket, m); code != exitFailed || !found.has(stateBad, "pcscd", "is not installed") {
		t.Errorf("got code %d and %+v", code, found)
	}
	status := func() string {
		var rows []string
		for _, row := range m.statusRows("", agent.Status) {
			rows = append(rows, strings.Join(row, " "))
		}
		return strings.Join(rows, "\n")
	}
	if got := status(); !strings.Contains(got, "is not installed") || !strings.Contains(got, "hint: apt install pcscd") {
		t.Errorf("status: got %q", got)
	}
	put(t, m, "/usr/sbin/pcscd", "")
	check(t, os.Remove(m.path("/run/pcscd/pcscd.comm")))
	const stopped = "pcscd is installed and does not run"
	if got := status(); !strings.Contains(got, stopped) || !strings.Contains(got, "hint: systemctl enable --now pcscd.socket") {
		t.Errorf("status: got %q", got)
	}
	var out synced
	for _, args := range []string{"piv list", "piv setup"} {
		a := &app{streams: streams{strings.NewReader(""), &out, &out, nil}, timeouts: usualTimeouts(), machine: m}
		root := a.commands()
		root.SetArgs(append([]string{"--socket", agent.Socket}, strings.Fields(args)...))
		if code := a.report(root.ExecuteContext(t.Context())); code != 1 || !strings.Contains(out.String(), "error: "+stopped) {
			t.Errorf("%s: got %d and %q", args, code, out.String())
		}
	}
	put(t, m, "/run/pcscd/pcscd.comm", "")
	if got := status(); !strings.Contains(got, "pcscd is not running") {
		t.Errorf("status: got %q", got)
	}
}

// Many keys on one card that is elsewhere are one thing, and so are notes with one
// hint, in doctor as in piv list.
func TestDoctorGathers(t *testing.T) {
	card := clienttest.NewCard(7)
	card.Notes = []agentwire.Notice{{Message: "the PIN is bad", Hint: "piv setup"}, {Message: "a flaw", Hint: "replace it"}, {Message: "the PUK is bad", Hint: "piv setup"}, {Message: "x"}, {Message: "y"}}
	agent, m := withReaders(t, card)
	for _, name := range []string{"alice", "bob", "carol"} {
		agent.AddKey(name, keys.TLSClient, keys.ES256)
		agent.Change(name, func(k *agentwire.Key) { k.Backend, k.Place = "piv", &agentwire.Place{Card: 8, Slot: "9a"} })
	}
	agent.Change("carol", func(k *agentwire.Key) { k.Place.Card = 9 })
	found, code := examineAt(agent.Socket, m)
	if code != exitDone || !found.has(stateNote, "card 8", "on it: alice, bob") || !found.has(stateNote, "card 9", "on it: carol") || !found.has(stateNote, "card 7", "the PIN is bad; the PUK is bad") ||
		strings.Count(found.hints(), "insert it to use the keys") != 1 || strings.Count(found.hints(), "piv setup") != 1 {
		t.Errorf("got code %d and %+v", code, found)
	}
	command{socket: agent.Socket}.run("piv", "list").want(t, 0, "the PIN is bad; the PUK is bad\n", "note         x\n", "note         y\n")
}

func TestDoctorWithoutCards(t *testing.T) {
	agent, _ := withAlice(t)
	m := healthy(t)
	agent.Status.PID = 77
	check(t, os.MkdirAll(m.path("/proc/77"), 0o700))
	check(t, os.Symlink("/usr/bin/holdfast-agent", m.path("/proc/77/exe")))
	if found, code := examineAt(agent.Socket, m); code != exitDone || !found.has(stateOK, "cards", "none is used: holdfast-piv") || strings.Contains(found.hints(), "pinentry") {
		t.Errorf("got code %d and %+v", code, found)
	}
	put(t, m, "/sys/bus/usb/devices/1-4/idVendor", "1050\n")
	if found, code := examineAt(agent.Socket, m); code != exitDone || !found.has(stateNote, "cards", "a YubiKey is plugged in; holdfast-piv") {
		t.Errorf("with a YubiKey: got code %d and %+v", code, found)
	}
	put(t, m, "/usr/libexec/holdfast/holdfast-piv", "")
	agent.Change("alice", func(k *agentwire.Key) { k.PIN = true })
	if found, code := examineAt(agent.Socket, m); code != exitDone || !found.has(stateNote, "cards", "although holdfast-piv is installed") || !found.has(stateNote, "pinentry", "no pinentry") {
		t.Errorf("switched off: got code %d and %+v", code, found)
	}
	if n := len(agent.Calls(agentwire.ListCards)); n != 0 {
		t.Errorf("an agent without cards was asked for them %d times", n)
	}
}

// A look at cards that takes for ever is given up, and said.
func TestDoctorSilentCards(t *testing.T) {
	var found findings
	found.cardsFault(healthy(t), found.bad, "user", context.DeadlineExceeded)
	if !found.has(stateBad, "cards", "has not looked at the cards within 20s") {
		t.Errorf("got %+v", found)
	}
}
