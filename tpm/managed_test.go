package tpm

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/pace"
	"holdfast/test/swtpm"
)

// The faults again, behind a resource manager: each key has a descriptor then.

func TestManagedStoppedDevice(t *testing.T) {
	b, _, device := behind(t, true)
	plain, pin := create(t, b, es256), create(t, b, pinned(true))
	unlock(t, b, pin, testPIN)
	mustSign(t, b, pin, p256)
	device.Stop()
	wantKind(t, signs(within(t, 100*time.Millisecond), b, plain, p256), fault.Deadline)
	wantKind(t, signs(within(t, 100*time.Millisecond), b, pin, p256), fault.DeviceWedged)
	b.Lock(nil)
	device.Cont()
	mustSign(t, b, plain, p256)
	wantKind(t, signs(soon(t), b, pin, p256), fault.PINRequired) // the lost reply cost the session
	unlock(t, b, pin, testPIN)
	mustSign(t, b, pin, p256)
	wantState(t, b, keys.StateReady)
}

func TestManagedRestart(t *testing.T) {
	b, _, device := behind(t, true)
	asked := es256
	asked.Persistent = true
	list := []keys.Material{create(t, b, es256), create(t, b, asked), create(t, b, es256)}
	for range 3 {
		device.Kill()
		device.Restart()
		for i, m := range list {
			if err := signs(soon(t), b, m, p256); err != nil {
				t.Errorf("key %d after a restart: %v", i, err)
			}
		}
	}
}

// TestManagedLostKeyIsAlone: a lost reply on one key's descriptor costs the
// others nothing.
func TestManagedLostKeyIsAlone(t *testing.T) {
	b, proxy, _ := behind(t, true)
	victim, bystander := create(t, b, es256), create(t, b, es256)
	mustSign(t, b, bystander, p256)
	proxy.SetScript(swtpm.At(0, swtpm.DropAfter))
	mustSign(t, b, victim, p256)
	proxy.SetScript(nil)
	proxy.ResetCounts()
	mustSign(t, b, bystander, p256)
	if got := proxy.Counts()[tpm2.TPMCCLoad]; got != 0 {
		t.Errorf("the other key was loaded again: %v", proxy.Counts())
	}
}

// TestConcurrentUse makes, uses, unlocks, locks and deletes at once.
func TestConcurrentUse(t *testing.T) {
	for _, managed := range []bool{false, true} {
		t.Run(fmt.Sprintf("managed %v", managed), func(t *testing.T) {
			t.Parallel()
			b, proxy, device := behind(t, managed)
			shared, pin := create(t, b, es256), create(t, b, pinned(false))
			var all sync.WaitGroup
			for worker := range 4 {
				all.Go(func() {
					for range 5 {
						if err := turn(b, worker, shared, pin); err != nil {
							t.Errorf("worker %d: %v", worker, err)
						}
					}
				})
			}
			all.Wait()
			b.Close()
			proxy.Close()
			if left := device.Handles(); len(left) != 0 {
				t.Errorf("the device still holds %x", left)
			}
		})
	}
}

// turn is one round of a worker. Another one may lock the PIN key meanwhile.
func turn(b *TPM, worker int, shared, pin keys.Material) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	switch worker {
	case 0:
		m, err := b.Create(ctx, es256)
		if err != nil {
			return err
		}
		if err := signs(ctx, b, m, p256); err != nil {
			return err
		}
		return b.Delete(ctx, m)
	case 1:
		if err := b.Unlock(ctx, pin, testPIN, time.Now().Add(time.Minute)); err != nil {
			return err
		}
		if err := signs(ctx, b, pin, p256); fault.KindOf(err) != fault.PINRequired {
			return err
		}
		return nil
	case 2:
		b.Lock(&pin)
		b.Status(ctx)
	}
	return signs(ctx, b, shared, p256)
}

func TestOldestSparesSessions(t *testing.T) {
	b := open(t, Config{Device: "swtpm:/nowhere"})
	any := func(*entry) bool { return true }
	if got := b.oldest(any); got != "" {
		t.Errorf("got %q from an empty table", got)
	}
	for i, id := range []string{"old, unlocked", "newer", "newest"} {
		b.loaded[id] = &entry{key: &key{id: id}, used: uint64(i)}
	}
	b.unlocked["old, unlocked"] = &session{timer: time.NewTimer(time.Hour)}
	for _, want := range []string{"newer", "newest", "old, unlocked"} {
		got := b.oldest(any)
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		delete(b.loaded, got)
	}
}

func TestSignRefusesArguments(t *testing.T) {
	b, proxy, _ := behind(t, false)
	m := create(t, b, es256)
	proxy.ResetCounts()
	for _, c := range []struct {
		name   string
		scheme keys.Scheme
		digest int
		want   fault.Kind
	}{
		{"no digest", p256, 0, fault.BadRequest},
		{"short digest", p256, 31, fault.BadRequest},
		{"long digest", p256, 33, fault.BadRequest},
		{"unknown scheme", "ed25519", 32, fault.BadRequest},
		{"another curve", keys.ECDSAP384SHA384, 48, fault.Unsupported},
		{"another type", keys.RSAPSSSHA256, 32, fault.Unsupported},
	} {
		_, err := b.Sign(soon(t), m, c.scheme, make([]byte, c.digest))
		if got := fault.KindOf(err); got != c.want {
			t.Errorf("%s: got %q (%v), want %q", c.name, got, err, c.want)
		}
	}
	if got := proxy.Total(); got != 0 {
		t.Errorf("the device got %d commands", got)
	}
	wantKind(t, b.Unlock(soon(t), m, testPIN, time.Now().Add(time.Minute)), fault.BadRequest)
	pin := create(t, b, pinned(false))
	wantKind(t, b.Unlock(soon(t), pin, []byte("12\x0034"), time.Now().Add(time.Minute)), fault.BadRequest)
	wantKind(t, b.Unlock(soon(t), pin, testPIN, time.Now()), fault.BadRequest)
	_, err := b.Create(soon(t), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, PIN: []byte("1\x00234")})
	wantKind(t, err, fault.BadRequest)
}

// TestPINOfEveryByte uses PINs of the shortest and longest kind with every byte
// that CheckPIN lets through.
func TestPINOfEveryByte(t *testing.T) {
	b, _, _ := behind(t, false)
	for first := 1; first < 256; first += keys.MaxPIN {
		pin := make([]byte, keys.MaxPIN)
		for i := range pin {
			pin[i] = byte(min(first+i, 255))
		}
		asked := pinned(false)
		asked.PIN = pin
		m := create(t, b, asked)
		unlock(t, b, m, pin)
		mustSign(t, b, m, p256)
		b.Lock(nil)
		wantKind(t, signs(soon(t), b, m, p256), fault.PINRequired)
	}
}

// TestMutedStart: a TPM that answers TPM_RC_RETRY after its start, and a caller
// whose deadline is over before anything was sent.
func TestEndedCallerSendsNothing(t *testing.T) {
	b, proxy, _ := behind(t, false)
	m := create(t, b, es256)
	proxy.ResetCounts()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	wantKind(t, signs(ctx, b, m, p256), fault.Deadline)
	if got := proxy.Total(); got != 0 {
		t.Errorf("the device got %d commands for a caller who has gone", got)
	}
	if got := b.state(); got != keys.StateReady {
		t.Errorf("got state %q, want ready", got)
	}
}

// TestWaitingCallerEnds: a caller whose time ends while another owns the device.
func TestWaitingCallerEnds(t *testing.T) {
	b, proxy, _ := behind(t, false)
	m := create(t, b, es256)
	proxy.SetDelay(tpm2.TPMCCSign, 300*time.Millisecond)
	busy := make(chan error)
	go func() { busy <- signs(soon(t), b, m, p256) }()
	for len(b.owner) == 0 {
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	wantKind(t, signs(within(t, 20*time.Millisecond), b, m, p256), fault.Deadline)
	if took := time.Since(start); pace.Over(t, took, 200*time.Millisecond) {
		t.Errorf("the wait took %v of 20 ms", took)
	}
	if err := <-busy; err != nil {
		t.Errorf("the owner: %v", err)
	}
	if got := b.state(); got != keys.StateReady {
		t.Errorf("got state %q, want ready: the device was never late", got)
	}
}
