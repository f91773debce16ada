package client_test

import (
	"bytes"
	"testing"

	"holdfast/client"
	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/test/daemon"
	"holdfast/test/swtpm"
)

// TestSeal walks through the three methods on the stand-in.
func TestSeal(t *testing.T) {
	stand := clienttest.Start(t)
	c, err := client.Dial(t.Context(), &client.Options{Socket: stand.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	unseals := func(want string) {
		t.Helper()
		if got, err := c.Unseal(t.Context(), "loopback"); err != nil || string(got) != want {
			t.Errorf("unseal: got %q, %v, want %q", got, err, want)
		}
	}
	if _, err := c.Unseal(t.Context(), "loopback"); fault.KindOf(err) != fault.Denied {
		t.Errorf("unseal of what is not there: got %v, want denied", err)
	}
	stand.Lose(agentwire.Seal, 1)
	if err := c.Seal(t.Context(), "loopback", []byte("one"), false); err != nil {
		t.Errorf("seal with a lost reply: %v, want it repeated and taken", err)
	}
	if got := len(stand.Calls(agentwire.Seal)); got != 2 {
		t.Errorf("got %d calls, want 2 with the same request id", got)
	}
	unseals("one")
	if err := c.Seal(t.Context(), "loopback", []byte("two"), false); fault.KindOf(err) != fault.BadRequest {
		t.Errorf("seal under a taken name: got %v, want bad-request", err)
	}
	unseals("one")
	if err := c.Seal(t.Context(), "loopback", []byte("two"), true); err != nil {
		t.Errorf("replace: %v", err)
	}
	unseals("two")
	if err := c.Seal(t.Context(), "long", bytes.Repeat([]byte{1}, 129), false); fault.KindOf(err) != fault.BadRequest {
		t.Errorf("a long secret: got %v, want bad-request", err)
	}
	if err := c.DeleteSealed(t.Context(), "loopback"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := c.DeleteSealed(t.Context(), "loopback"); fault.KindOf(err) != fault.Denied {
		t.Errorf("second delete: got %v, want denied", err)
	}
}

// TestRealSeal seals on a software TPM, opens after a restart of the agent and of
// the TPM, and not any more after a clear.
func TestRealSeal(t *testing.T) {
	device := swtpm.Start(t)
	options := daemon.Options{Dir: daemon.Dir(t), Device: device.Device()}
	agent := daemon.Start(t, options)
	secret := bytes.Repeat([]byte{0, 1, 0xff}, 42)
	if err := dial(t, agent.Socket).Seal(t.Context(), "loopback", secret, false); err != nil {
		t.Fatal(err)
	}
	agent.Stop()
	device.Reset()
	agent = daemon.Start(t, options)
	c := dial(t, agent.Socket)
	if got, err := c.Unseal(t.Context(), "loopback"); err != nil || !bytes.Equal(got, secret) {
		t.Errorf("after a restart: got %d bytes, %v, want %d", len(got), err, len(secret))
	}
	agent.Stop()
	device.Clear()
	agent = daemon.Start(t, options)
	c = dial(t, agent.Socket)
	if _, err := c.Unseal(t.Context(), "loopback"); fault.KindOf(err) != fault.IdentityChanged {
		t.Errorf("after a clear: got %v, want identity-changed", err)
	}
	if err := c.Seal(t.Context(), "loopback", secret, true); err != nil {
		t.Errorf("sealing anew: %v", err)
	}
	if got, err := c.Unseal(t.Context(), "loopback"); err != nil || !bytes.Equal(got, secret) {
		t.Errorf("sealed anew: %v", err)
	}
}
