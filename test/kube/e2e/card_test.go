package e2e

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/test/daemon"
	"holdfast/test/desktop"
	"holdfast/test/pivcard"
)

// The codes of a card that is set up.
const cardPIN, cardPUK = "246813", "97531864"

// withCard sets the card up, makes a key on it, and adds its profile, card, which
// is the rig's from then on.
func withCard(t testing.TB, card *pivcard.Card, on agentwire.OnCard) setup {
	return func(r *rig, o *daemon.BrokerOptions) {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		c, err := client.Dial(ctx, &client.Options{Socket: r.agent.Socket})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		err = c.SetUpCard(ctx, agentwire.SetUpCardParameters{Card: card.Serial, PIN: []byte(cardPIN), PUK: []byte(cardPUK)})
		if err != nil {
			t.Fatalf("set the card up: %v", err)
		}
		r.enrolWith(t, alice, agentwire.CreateKeyParameters{Name: "card", Backend: "piv", PIN: []byte(cardPIN), OnCard: &on}, cardPIN)
		r.profile = r.newProfile("card")
		o.Profiles = append(o.Profiles, r.profile)
	}
}

// cardRig starts a rig with a card.
func cardRig(t *testing.T, on agentwire.OnCard) (*rig, *pivcard.Card) {
	t.Helper()
	reader := pivcard.Start(t, 1)
	card := reader.NewCard(pivcard.Options{})
	card.TouchAfter(100 * time.Millisecond) // for the certificate request
	if err := reader.Insert(card); err != nil {
		t.Fatal(err)
	}
	agent := daemon.Options{Cards: &daemon.Cards{Socket: reader.Socket(), Roots: reader.RootFile()}}
	return newRigWith(t, sharedPlane(t), alice, agent, withCard(t, card, on)), card
}

// TestCard: kubectl with a key on a card. The PIN is typed once, at the terminal,
// and one signature serves many commands.
func TestCard(t *testing.T) {
	r, card := cardRig(t, agentwire.OnCard{})
	kubeconfig := r.kubeconfig(t, profile.ModeProxy)
	card.Forget()
	cmd := r.kubectl(kubeconfig, "auth", "whoami")
	terminal := desktop.OpenTerminal(t, append(cmd.Env, "TERM=screen"), strings.Join(cmd.Args, " ")+"; echo ended with $?; exec cat")
	terminal.AwaitPrompt()
	terminal.Type(cardPIN)
	if screen := terminal.Await("ended with"); !strings.Contains(screen, "alice") || !strings.Contains(screen, "ended with 0") {
		t.Fatalf("kubectl:\n%s", screen)
	}
	for range 5 {
		must(t, r.kubectl(kubeconfig, "get", "namespaces"))
	}
	if n := card.PINTries(); n != 1 {
		t.Errorf("the card got %d PINs, want 1", n)
	}
	if n := card.Count(pivcard.Authenticate); n != 1 {
		t.Errorf("the card made %d signatures for 6 commands, want 1", n)
	}
}

// TestTouchEachTime: a key that wants a touch each time gets one for each request,
// and nobody else's connection.
func TestTouchEachTime(t *testing.T) {
	r, card := cardRig(t, agentwire.OnCard{PINPolicy: "never", TouchPolicy: "always"})
	kubeconfig := r.kubeconfig(t, profile.ModeProxy)
	must(t, r.kubectl(kubeconfig, "get", "--raw", "/version"))
	card.Forget()
	const commands = 3
	for range commands {
		must(t, r.kubectl(kubeconfig, "get", "--raw", "/version"))
	}
	if n := card.Count(pivcard.Authenticate); n != commands {
		t.Errorf("%d commands of one request each, %d touches", commands, n)
	}
	card.TouchAfter(0)
	o := run(r.kubectl(kubeconfig, "get", "--raw", "/version", "--request-timeout=3s"))
	if o.code == 0 {
		t.Error("kubectl signed in although nobody touched the card")
	}
}

// TestScreenLock: what signed in while a person was there ends when the screen
// locks, and when the machine goes to sleep.
func TestScreenLock(t *testing.T) {
	bus := desktop.StartBus(t)
	logind := bus.StartLogind()
	logind.AddSession("c1", uint32(os.Getuid()))
	r := newRigWith(t, sharedPlane(t), alice, daemon.Options{Env: []string{"DBUS_SYSTEM_BUS_ADDRESS=" + bus.Address}}, withPIN(t))
	for name, lock := range map[string]func(){
		"screen": func() { logind.Lock("c1") },
		"sleep":  func() { logind.PrepareForSleep(true); logind.PrepareForSleep(false) },
	} {
		r.unlock(t, "careful")
		follow := r.kubectl(r.kubeconfig(t, profile.ModeProxy), "get", "--raw", "/api/v1/namespaces?watch=true")
		ended := make(chan outcome, 1)
		go func() { ended <- run(follow) }()
		eventually(t, "the watch", func() string {
			if r.connections("careful") == 0 {
				return "no connection"
			}
			return ""
		})
		lock()
		select {
		case <-ended:
		case <-time.After(testTimeout):
			t.Fatalf("%s: a watch goes on", name)
		}
		o := run(r.kubectl(r.kubeconfig(t, profile.ModeProxy), "auth", "whoami"))
		if o.code == 0 || !strings.Contains(o.stderr, "exit code 5") {
			t.Errorf("%s: the next command: exit %d\n%s", name, o.code, o.stderr)
		}
	}
}
