package keyring_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"holdfast/internal/keyring"
	"holdfast/test/desktop"
)

var background = context.Background()

// soon is a deadline that has to pass.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func on(t *testing.T, bus *desktop.Bus) *keyring.Keyring {
	t.Helper()
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus.Address)
	return keyring.New()
}

// all wants the same error of every method.
func all(t *testing.T, k *keyring.Keyring, ctx func(*testing.T) context.Context, want error) {
	t.Helper()
	if v, err := k.Get(ctx(t), "name"); !errors.Is(err, want) || v != nil {
		t.Errorf("Get: %q, %v, want %v", v, err, want)
	}
	if err := k.Set(ctx(t), "name", []byte("secret")); !errors.Is(err, want) {
		t.Errorf("Set: %v, want %v", err, want)
	}
	if err := k.Delete(ctx(t), "name"); !errors.Is(err, want) {
		t.Errorf("Delete: %v, want %v", err, want)
	}
}

func forever(*testing.T) context.Context { return background }

func get(t *testing.T, k *keyring.Keyring, name string) []byte {
	t.Helper()
	v, err := k.Get(background, name)
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	return v
}

func set(t *testing.T, k *keyring.Keyring, name string, secret []byte) {
	t.Helper()
	if err := k.Set(background, name, secret); err != nil {
		t.Fatalf("Set: %v", err)
	}
}

func TestSecrets(t *testing.T) {
	bus := desktop.StartBus(t)
	daemon := bus.StartKeyring()
	k := on(t, bus)
	if _, err := k.Get(background, "name"); !errors.Is(err, keyring.ErrNotFound) {
		t.Errorf("nothing was set: %v", err)
	}
	if err := k.Delete(background, "name"); !errors.Is(err, keyring.ErrNotFound) {
		t.Errorf("nothing was set: %v", err)
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, secret := range map[string][]byte{"name": every, "other": {}, "long": bytes.Repeat(every, keyring.MaxSecret/256)} {
		set(t, k, name, secret)
		if got := get(t, k, name); !bytes.Equal(got, secret) {
			t.Errorf("%s: got %x, want %x", name, got, secret)
		}
	}
	set(t, k, "name", []byte("another"))
	if got := get(t, k, "name"); string(got) != "another" || daemon.Items() != 3 {
		t.Errorf("replaced: got %q, %d items", got, daemon.Items())
	}
	if err := k.Set(background, "long", make([]byte, keyring.MaxSecret+1)); err == nil {
		t.Error("a secret that is too long was taken")
	}
	if err := k.Delete(background, "name"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Get(background, "name"); !errors.Is(err, keyring.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	// They outlive the daemon.
	daemon.Stop()
	bus.StartKeyring()
	if got := get(t, k, "other"); len(got) != 0 {
		t.Errorf("after a restart: %q", got)
	}
}

// secret-tool, from libsecret, finds what was set and sets what is found.
func TestSecretTool(t *testing.T) {
	bus := desktop.StartBus(t)
	bus.StartKeyring()
	k := on(t, bus)
	set(t, k, "name", []byte{0, 1, 0xff})
	if got := tool(t, "", "lookup", "service", "holdfast", "username", "name"); got != "AAH/" {
		t.Errorf("got %q", got)
	}
	tool(t, "MTIzNDU2", "store", "--label=x", "service", "holdfast", "username", "pin")
	if got := get(t, k, "pin"); string(got) != "123456" {
		t.Errorf("got %q", got)
	}
	tool(t, "not base64 but secret", "store", "--label=x", "service", "holdfast", "username", "pin")
	if v, err := k.Get(background, "pin"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %q, %v, want an error without it", v, err)
	}
}

func tool(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("secret-tool", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("secret-tool %v: %v", args, err)
	}
	return string(out)
}

// prompter stands where gnome-keyring's prompter would be, and counts.
type prompter struct{ prompts chan string }

func (p prompter) BeginPrompting(dbus.ObjectPath) *dbus.Error {
	p.prompts <- "a person was asked"
	return nil
}

func (p prompter) StopPrompting(dbus.ObjectPath) *dbus.Error { return nil }

func prompts(t *testing.T, bus *desktop.Bus) chan string {
	t.Helper()
	const name = "org.gnome.keyring.SystemPrompter"
	p := prompter{make(chan string, 10)}
	conn := bus.Connect()
	if err := conn.Export(p, "/org/gnome/keyring/Prompter", "org.gnome.keyring.internal.Prompter"); err != nil {
		t.Fatal(err)
	}
	if reply, err := conn.RequestName(name, 0); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
	return p.prompts
}

// A locked keyring is an error at once, and no dialog.
func TestLocked(t *testing.T) {
	bus := desktop.StartBus(t)
	daemon := bus.StartKeyring()
	k := on(t, bus)
	asked := prompts(t, bus)
	set(t, k, "name", []byte("secret"))
	daemon.Lock()
	all(t, k, forever, keyring.ErrLocked)
	daemon.Stop()
	daemon = bus.StartLockedKeyring()
	all(t, k, forever, keyring.ErrLocked)
	daemon.Stop()
	bus.StartKeyring()
	if got := get(t, k, "name"); string(got) != "secret" {
		t.Errorf("unlocked again: %q", got)
	}
	select {
	case what := <-asked:
		t.Error(what)
	default:
	}
}

func TestNoKeyring(t *testing.T) {
	bus := desktop.StartBus(t)
	k := on(t, bus)
	all(t, k, forever, keyring.ErrNoService) // nobody there
	daemon := bus.StartLockedKeyring()
	all(t, k, forever, keyring.ErrNoService) // nobody has logged in ever
	daemon.Stop()
	bus.Stop()
	all(t, k, forever, keyring.ErrNoService) // no bus
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "tcp:host=127.0.0.1,port=1")
	all(t, k, forever, keyring.ErrNoService)
	os.Unsetenv("DBUS_SESSION_BUS_ADDRESS")
	all(t, k, forever, keyring.ErrNoService)
	if os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		t.Error("a bus was started")
	}
	bus.Restart()
	bus.StartKeyring()
	set(t, on(t, bus), "name", []byte("secret")) // the same bus, come back
}

// A bus that starts a keyring by itself starts a locked one.
func TestActivatedKeyring(t *testing.T) {
	bus := desktop.StartActivatingBus(t)
	asked := prompts(t, bus)
	k := on(t, bus)
	all(t, k, forever, keyring.ErrNoService)
	select {
	case what := <-asked:
		t.Error(what)
	default:
	}
}

func TestHungKeyring(t *testing.T) {
	bus := desktop.StartBus(t)
	daemon := bus.StartKeyring()
	k := on(t, bus)
	set(t, k, "name", []byte("secret"))
	daemon.Signal(syscall.SIGSTOP)
	all(t, k, soon, keyring.ErrTimeout)
	daemon.Signal(syscall.SIGCONT)
	if got := get(t, k, "name"); string(got) != "secret" {
		t.Errorf("got %q", got)
	}
}

func TestHungBus(t *testing.T) {
	bus := desktop.StartBus(t)
	bus.StartKeyring()
	k := on(t, bus)
	set(t, k, "name", []byte("secret"))
	bus.Signal(syscall.SIGSTOP)
	all(t, k, soon, keyring.ErrTimeout)
	all(t, k, forever, keyring.ErrTimeout) // at once: the first one still hangs
	bus.Signal(syscall.SIGCONT)
	for deadline := time.Now().Add(20 * time.Second); ; {
		got, err := k.Get(background, "name")
		if err == nil && string(got) == "secret" {
			return
		}
		if !errors.Is(err, keyring.ErrTimeout) || time.Now().After(deadline) {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}
