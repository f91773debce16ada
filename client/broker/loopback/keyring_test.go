package loopback

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keyring"
	"holdfast/test/desktop"
)

// inTheKeyring is what people are told.
const inTheKeyring = "in the desktop's keyring"

// onADesktop is Options without a device that seals, on a bus.
func onADesktop(t *testing.T) (Options, *desktop.Bus, *bytes.Buffer) {
	t.Helper()
	bus := desktop.StartBus(t)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus.Address)
	o, d := options(t)
	d.seals = kind(fault.Unsupported)
	log := &bytes.Buffer{}
	o.Keyring, o.Log = keyring.New(), slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return o, bus, log
}

func keyPath(o Options) string { return filepath.Join(o.State, keyFile) }

func hasFile(o Options) bool {
	_, err := os.Lstat(keyPath(o))
	return err == nil
}

// wantKept opens the identity, which has to be the one of before, when there was
// one, and its key where it is wanted.
func wantKept(t *testing.T, o Options, where string, before *Identity) *Identity {
	t.Helper()
	i := open(t, o)
	if i.Key != where || hasFile(o) != (where == keyPath(o)) || i.KeyFile != hasFile(o) {
		t.Errorf("the key is %s, want %s; there is a file: %v", i.Key, where, hasFile(o))
	}
	if certificate, key := Kept(o.State); certificate != i.PEM || key != where {
		t.Errorf("kept: %s, want %s", key, where)
	}
	if before != nil && (i.PEM != before.PEM || !i.Replaced.IsZero()) {
		t.Error("it is another one: kubeconfigs do not fit any more")
	}
	return i
}

func TestKeyInTheKeyring(t *testing.T) {
	o, bus, _ := onADesktop(t)
	daemon := bus.StartKeyring()
	first := wantKept(t, o, inTheKeyring, nil)
	wantKept(t, o, inTheKeyring, first)
	secret, err := first.Certificate.PrivateKey.(interface{ Bytes() ([]byte, error) }).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := o.Keyring.Get(context.Background(), keyringName(first.PEM))
	if err != nil || !bytes.Equal(kept, secret) {
		t.Errorf("the keyring does not have the key: %v", err)
	}
	daemon.Stop()
	bus.StartKeyring()
	wantKept(t, o, inTheKeyring, first)
	// Another broker's key is another one.
	second := o
	second.State = t.TempDir()
	if err := os.Chmod(second.State, 0o700); err != nil {
		t.Fatal(err)
	}
	wantKept(t, second, inTheKeyring, nil)
	wantKept(t, o, inTheKeyring, first)
}

// A device that seals comes first, and so does the wish for a file.
func TestKeyringIsNotWanted(t *testing.T) {
	o, bus, _ := onADesktop(t)
	daemon := bus.StartKeyring()
	o.Sealer = &device{}
	wantKept(t, o, "sealed by the TPM", nil)
	o, _ = options(t)
	o.Keyring, o.KeyFile = keyring.New(), true
	first := wantKept(t, o, keyPath(o), nil)
	wantKept(t, o, keyPath(o), first)
	if n := daemon.Items(); n != 0 {
		t.Errorf("the keyring has %d items", n)
	}
}

// Without an unlocked keyring the key is in a file, until there is one.
func TestKeyMovesToTheKeyring(t *testing.T) {
	o, bus, log := onADesktop(t)
	first := wantKept(t, o, keyPath(o), nil) // no keyring
	daemon := bus.StartKeyring()
	daemon.Lock()
	wantKept(t, o, keyPath(o), first)
	if info, err := os.Lstat(keyPath(o)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if n := strings.Count(log.String(), "level=DEBUG"); n != 2 || strings.Contains(log.String(), "level=INFO") {
		t.Errorf("logged:\n%s", log)
	}
	daemon.Stop()
	bus.StartKeyring()
	wantKept(t, o, inTheKeyring, first)
	wantKept(t, o, inTheKeyring, first)
	if n := strings.Count(log.String(), "level=INFO"); n != 1 {
		t.Errorf("logged:\n%s", log)
	}
}

// A desktop need not have a device, and may get one later.
func TestKeyMovesToTheDevice(t *testing.T) {
	for _, absent := range []fault.Kind{fault.Unsupported, fault.DeviceAbsent} {
		o, bus, _ := onADesktop(t)
		d := &device{seals: kind(absent)}
		o.Sealer = d
		first := wantKept(t, o, keyPath(o), nil)
		d.seals = kind(fault.Busy)
		wantKept(t, o, keyPath(o), first)
		d.seals, d.sealed = nil, map[string][]byte{SealedName: []byte("another broker's")}
		wantKept(t, o, keyPath(o), first)
		delete(d.sealed, SealedName)
		bus.StartKeyring() // the device comes first
		wantKept(t, o, "sealed by the TPM", first)
		wantKept(t, o, "sealed by the TPM", first)
	}
	o, bus, _ := onADesktop(t)
	bus.StartKeyring()
	o.Sealer = &device{seals: kind(fault.DeviceAbsent)}
	first := wantKept(t, o, inTheKeyring, nil)
	o.Sealer = &device{}
	wantKept(t, o, inTheKeyring, first)
}

// A key that is in a keyring is waited for, whatever becomes of the keyring.
func TestKeyInTheKeyringIsNotReplaced(t *testing.T) {
	o, bus, _ := onADesktop(t)
	daemon := bus.StartKeyring()
	first := wantKept(t, o, inTheKeyring, nil)
	refused := func(what string, o Options, k fault.Kind, fact string) {
		t.Helper()
		timeout := 30 * time.Second
		if k == fault.Deadline {
			timeout = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		_, err := Open(ctx, o)
		e, ok := fault.AsError(err)
		if !ok || e.Kind != k || !strings.Contains(e.Message, fact) || e.Hint == "" {
			t.Errorf("%s: got %v, want %s, %q and a hint", what, err, k, fact)
		}
		if certificate, _ := Kept(o.State); certificate != first.PEM || hasFile(o) {
			t.Errorf("%s: it was replaced", what)
		}
	}
	daemon.Signal(syscall.SIGSTOP)
	refused("hangs", o, fault.Deadline, "does not answer")
	daemon.Signal(syscall.SIGCONT)
	daemon.Lock()
	refused("locked", o, fault.PINRequired, "is locked")
	daemon.Stop()
	refused("ended", o, fault.DeviceAbsent, "there is none now")
	other := desktop.StartBus(t)
	other.StartKeyring()
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", other.Address)
	refused("another desktop's", o, fault.DeviceAbsent, "this one does not have it")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
	refused("no such bus", o, fault.DeviceAbsent, "there is none now")
	none := o
	none.Keyring = nil
	refused("not asked", none, fault.DeviceAbsent, "there is none now")
	broken := o
	broken.Keyring = &forgetful{get: errors.New("nonsense")}
	refused("broken", broken, fault.DeviceFailed, "did not give it back")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus.Address)
	bus.StartKeyring()
	wantKept(t, o, inTheKeyring, first)
}

// forgetful is a keyring that takes what it does not give back.
type forgetful struct {
	set, get error
	secret   []byte
}

func (f *forgetful) Set(context.Context, string, []byte) error { return f.set }

func (f *forgetful) Get(context.Context, string) ([]byte, error) {
	return bytes.Clone(f.secret), f.get
}

// The file stays until the keyring has shown that it has the key.
func TestKeyringThatForgets(t *testing.T) {
	for name, k := range map[string]*forgetful{
		"takes nothing":         {set: errors.New("full")},
		"has forgotten":         {get: keyring.ErrNotFound},
		"was locked in between": {get: keyring.ErrLocked},
		"has something else":    {secret: make([]byte, 32)},
		"has nothing":           {},
	} {
		o, d := options(t)
		d.seals, o.Keyring = kind(fault.Unsupported), k
		first := wantKept(t, o, keyPath(o), nil)
		wantKept(t, o, keyPath(o), first)
		if first.PEM == "" {
			t.Error(name)
		}
	}
}

// A broker that was killed while the key was moved.
func TestInterruptedMove(t *testing.T) {
	o, bus, _ := onADesktop(t)
	first := wantKept(t, o, keyPath(o), nil)
	file, err := os.ReadFile(keyPath(o))
	if err != nil {
		t.Fatal(err)
	}
	bus.StartKeyring()
	// Before the state was written: the keyring has it, and no state file names it.
	if err := o.Keyring.Set(context.Background(), keyringName(first.PEM), file); err != nil {
		t.Fatal(err)
	}
	wantKept(t, o, inTheKeyring, first)
	// Before the file was removed.
	if err := os.WriteFile(keyPath(o), file, 0o600); err != nil {
		t.Fatal(err)
	}
	wantKept(t, o, inTheKeyring, first)
	// A key that another program changed in the keyring is no reason to remove the file.
	if err := os.WriteFile(keyPath(o), file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := o.Keyring.Set(context.Background(), keyringName(first.PEM), make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), o); err == nil || !hasFile(o) {
		t.Errorf("got %v; the file is there: %v", err, hasFile(o))
	}
}

// A state that cannot be written leaves the key where it is.
func TestMoveWithoutState(t *testing.T) {
	o, bus, log := onADesktop(t)
	first := wantKept(t, o, keyPath(o), nil)
	bus.StartKeyring()
	kept, err := load(o.State)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := readKey(keyPath(o))
	if err != nil {
		t.Fatal(err)
	}
	readOnly := o
	readOnly.State = "/proc/self" // root may write wherever there are files
	if moved := readOnly.settle(context.Background(), kept, secret); moved.Key != keptInFile || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("it is %s now\n%s", moved.Key, log)
	}
	wantKept(t, o, inTheKeyring, first)
}
