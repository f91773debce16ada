package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/brokerwire"
	"holdfast/test/daemon"
	"holdfast/test/desktop"
)

// A user's broker on a desktop without a TPM, from one login to the next.
func TestKeyInTheKeyring(t *testing.T) {
	bus := desktop.StartBus(t)
	options := daemon.BrokerOptions{Agent: daemon.Start(t, daemon.Options{}), Env: []string{"DBUS_SESSION_BUS_ADDRESS=" + bus.Address}}
	start := func(where string) brokerwire.GetStatusReply {
		t.Helper()
		b := daemon.StartBroker(t, options)
		options.Dir = b.Dir
		s := b.GetStatus()
		if s.Endpoint.Key != where {
			t.Errorf("the key is %s, want %s\n%s", s.Endpoint.Key, where, b.Log())
		}
		if code := b.Stop(); code != 0 {
			t.Errorf("got status %d\n%s", code, b.Log())
		}
		return s
	}
	options.Dir = daemon.Dir(t)
	file := filepath.Join(options.Dir, "state", "loopback.key")
	const keyring = "in the desktop's keyring"

	first := start(file)
	daemon := bus.StartKeyring()
	second := start(keyring)
	if _, err := os.Lstat(file); err == nil {
		t.Error("the key is in a file as well")
	}
	daemon.Lock()
	locked := start(keyring)
	if len(second.Notices) != 0 || len(locked.Notices) != 1 || !strings.Contains(locked.Notices[0].Message, "which is locked") || !strings.Contains(locked.Notices[0].Hint, "unlock the keyring") {
		t.Errorf("notices: %+v, %+v", second.Notices, locked.Notices)
	}
	daemon.Stop()
	bus.StartKeyring()
	last := start(keyring)
	for _, s := range []brokerwire.GetStatusReply{second, locked, last} {
		if s.Endpoint.Certificate != first.Endpoint.Certificate || s.Endpoint.Address != first.Endpoint.Address {
			t.Errorf("kubeconfigs have %+v, now it is %+v", first.Endpoint, s.Endpoint)
		}
	}
}

// The machine's broker has no desktop, whatever its environment says.
func TestMachineHasNoKeyring(t *testing.T) {
	bus := desktop.StartBus(t)
	keyring := bus.StartKeyring()
	b := daemon.StartBroker(t, daemon.BrokerOptions{
		Agent: daemon.Start(t, daemon.Options{}), Args: []string{"--system"}, Env: []string{"DBUS_SESSION_BUS_ADDRESS=" + bus.Address},
	})
	s := b.GetStatus()
	if s.Endpoint.Key != "" || keyring.Items() != 0 || len(s.Notices) == 0 || !strings.Contains(s.Notices[0].Message, "without a device") {
		t.Errorf("%+v\n%s", s, b.Log())
	}
}
