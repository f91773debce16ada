package keyring_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"

	"holdfast/internal/keyring"
	"holdfast/test/desktop"
)

// service is a Secret Service that is unlocked and has nothing, until asked by
// go-keyring itself: then it misbehaves as each test has it.
type service struct {
	collections func(asked int) any
	prompt      dbus.ObjectPath // what Unlock answers
	itemLocked  bool            // there is an item, and it is locked though its collection is not

	conn  *dbus.Conn
	mu    sync.Mutex
	asked int
}

// change changes how it behaves.
func (s *service) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
}

const (
	secretsPath = dbus.ObjectPath("/org/freedesktop/secrets")
	login       = secretsPath + "/collection/login"
	item        = login + "/1"
)

func (s *service) Get(iface, name string) (dbus.Variant, *dbus.Error) {
	if name == "Locked" {
		return dbus.MakeVariant(iface == "org.freedesktop.Secret.Item"), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return dbus.MakeVariant(s.collections(s.asked)), nil
}

func (s *service) SearchItems(map[string]string) ([]dbus.ObjectPath, *dbus.Error) {
	if s.itemLocked {
		return []dbus.ObjectPath{item}, nil
	}
	return []dbus.ObjectPath{}, nil
}

func (s *service) Unlock([]dbus.ObjectPath) ([]dbus.ObjectPath, dbus.ObjectPath, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []dbus.ObjectPath{login}, s.prompt, nil
}

func (s *service) OpenSession(string, dbus.Variant) (dbus.Variant, dbus.ObjectPath, *dbus.Error) {
	return dbus.MakeVariant(""), "/session", nil
}

// Prompt shows a dialog that is never answered.
func (s *service) Prompt(string) *dbus.Error { return nil }

// serve puts the service on a bus.
func (s *service) serve(t *testing.T) *keyring.Keyring {
	t.Helper()
	bus := desktop.StartBus(t)
	s.conn = bus.Connect()
	for iface, paths := range map[string][]dbus.ObjectPath{
		"org.freedesktop.DBus.Properties":   {secretsPath, login, item},
		"org.freedesktop.Secret.Service":    {secretsPath},
		"org.freedesktop.Secret.Collection": {login},
		"org.freedesktop.Secret.Prompt":     {"/prompt"},
	} {
		for _, path := range paths {
			if err := s.conn.Export(s, path, iface); err != nil {
				t.Fatal(err)
			}
		}
	}
	if reply, err := s.conn.RequestName("org.freedesktop.secrets", 0); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
	return on(t, bus)
}

func proper(int) any { return []dbus.ObjectPath{login} }

// go-keyring panics on these.
func TestNonsense(t *testing.T) {
	s := &service{collections: func(asked int) any {
		if asked%2 == 0 { // the guard asks first, go-keyring after it
			return "nonsense"
		}
		return proper(asked)
	}, prompt: "/"}
	k := s.serve(t)
	for range 3 {
		if _, err := k.Get(background, "name"); err == nil || errors.Is(err, keyring.ErrTimeout) {
			t.Errorf("got %v", err)
		}
	}
	s.change(func() { s.collections = proper })
	if _, err := k.Get(background, "name"); !errors.Is(err, keyring.ErrNotFound) {
		t.Errorf("afterwards: %v", err)
	}
	s.change(func() { s.collections = func(int) any { return "nonsense" } }) // to the guard as well
	if _, err := k.Get(background, "name"); err == nil {
		t.Error("no error")
	}
}

// One that wants to ask a user, although it was unlocked, is waited for no longer
// than the deadline, and leaves nothing behind.
func TestPromptWithoutAnAnswer(t *testing.T) {
	s := &service{collections: proper, prompt: "/prompt"}
	k := s.serve(t)
	all(t, k, soon, keyring.ErrTimeout)
	s.change(func() { s.prompt = "/" })
	if _, err := k.Get(background, "name"); !errors.Is(err, keyring.ErrNotFound) {
		t.Errorf("afterwards: %v", err)
	}
}

// Some services lock items one by one.
func TestLockedItem(t *testing.T) {
	s := &service{collections: proper, prompt: "/prompt", itemLocked: true}
	all(t, s.serve(t), forever, keyring.ErrLocked)
}
