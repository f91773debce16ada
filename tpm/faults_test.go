package tpm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/pace"
	"holdfast/test/swtpm"
)

const p256 = keys.ECDSAP256SHA256

// direct returns a backend on a new software TPM, with nothing in between.
func direct(t *testing.T) (*TPM, *swtpm.TPM) {
	t.Helper()
	device := swtpm.Start(t)
	return open(t, Config{Device: device.Device()}), device
}

// wantState ends the test unless Status shows the state within a second.
func wantState(t *testing.T, b *TPM, want keys.State) keys.Status {
	t.Helper()
	s := b.Status(within(t, time.Second))
	if s.State != want {
		t.Fatalf("got state %q (%s), want %q", s.State, s.Reason, want)
	}
	return s
}

func TestStoppedDevice(t *testing.T) {
	b, device := direct(t)
	m := create(t, b, es256)
	wantState(t, b, keys.StateReady)
	device.Stop()
	for _, want := range []fault.Kind{fault.Deadline, fault.DeviceWedged, fault.DeviceWedged, fault.DeviceWedged} {
		start := time.Now()
		wantKind(t, signs(within(t, 200*time.Millisecond), b, m, p256), want)
		if took := time.Since(start); pace.Over(t, took, 2*time.Second) {
			t.Errorf("the call took %v, with 200 ms to go", took)
		}
	}
	wantState(t, b, keys.StateWedged)
	b.Lock(nil) // does not wait for the device
	device.Cont()
	start := time.Now()
	mustSign(t, b, m, p256)
	wantRecovered(t, start)
	wantState(t, b, keys.StateReady)
}

// A request to a device that is known not to answer is refused at once, however much
// time it has left, and work again once the device answers.
func TestWedgedDeviceAnswersAtOnce(t *testing.T) {
	b, device := direct(t)
	m := create(t, b, es256)
	device.Stop()
	wantKind(t, signs(within(t, 200*time.Millisecond), b, m, p256), fault.Deadline)
	wantState(t, b, keys.StateWedged)
	for name, request := range map[string]func(context.Context) error{
		"sign":   func(ctx context.Context) error { return signs(ctx, b, m, p256) },
		"create": func(ctx context.Context) error { _, err := b.Create(ctx, es256); return err },
		"check":  func(ctx context.Context) error { return b.Check(ctx, m) },
	} {
		start := time.Now()
		wantKind(t, request(within(t, 20*time.Second)), fault.DeviceWedged)
		if took := time.Since(start); pace.Over(t, took, 2*time.Second) {
			t.Errorf("%s took %v on a device that is known to be wedged", name, took)
		}
	}
	start := time.Now()
	errs := make(chan error, 20)
	for range cap(errs) { // requests that wait for their turn share one question
		go func() { errs <- signs(within(t, 20*time.Second), b, m, p256) }()
	}
	for range cap(errs) {
		wantKind(t, <-errs, fault.DeviceWedged)
	}
	if took := time.Since(start); pace.Over(t, took, 3*time.Second) {
		t.Errorf("20 requests took %v", took)
	}
	device.Cont()
	mustSign(t, b, m, p256)
}

// wantRecovered is generous for a machine that does other things too; the log
// has the time that it took here.
func wantRecovered(t *testing.T, start time.Time) {
	t.Helper()
	took := time.Since(start)
	t.Logf("recovery took %v", took)
	if pace.Over(t, took, 3*time.Second) {
		t.Errorf("recovery took %v", took)
	}
}

func TestCancelledCallIsNoFault(t *testing.T) {
	b, device := direct(t)
	m := create(t, b, es256)
	device.Stop()
	ctx, cancel := context.WithCancel(soon(t))
	stop := time.AfterFunc(20*time.Millisecond, cancel)
	defer stop.Stop()
	err := signs(ctx, b, m, p256)
	wantKind(t, err, fault.Deadline)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it to be context.Canceled", err)
	}
	if got := b.state(); got != keys.StateReady {
		t.Errorf("got state %q after a cancelled call, want ready", got)
	}
	device.Cont()
	mustSign(t, b, m, p256)
}

func TestKilledDevice(t *testing.T) {
	b, device := direct(t)
	asked := es256
	asked.Persistent = true
	transient, persistent := create(t, b, es256), create(t, b, asked)
	for range 5 {
		device.Kill()
		wantKind(t, signs(soon(t), b, transient, p256), fault.DeviceAbsent)
		wantState(t, b, keys.StateAbsent)
		device.Restart()
		start := time.Now()
		mustSign(t, b, transient, p256)
		wantRecovered(t, start)
		mustSign(t, b, persistent, p256)
		wantState(t, b, keys.StateReady)
	}
}

func TestResetDevice(t *testing.T) {
	b, device := direct(t)
	asked := es256
	asked.PIN = []byte("1234")
	plain, pin := create(t, b, es256), create(t, b, asked)
	unlock(t, b, pin, asked.PIN)
	mustSign(t, b, pin, p256)
	device.Reset()
	mustSign(t, b, plain, p256)
	wantKind(t, signs(soon(t), b, pin, p256), fault.PINRequired)
	unlock(t, b, pin, asked.PIN)
	mustSign(t, b, pin, p256)
	device.Reset()
	if err := b.Check(soon(t), plain); err != nil {
		t.Errorf("Check after a reset: %v", err)
	}
}

func TestFailureMode(t *testing.T) {
	b, proxy, _ := behind(t, false)
	m := create(t, b, es256)
	proxy.SetScript(func(int, tpm2.TPMCC) swtpm.Fate { return swtpm.Fate(tpm2.TPMRCFailure) })
	wantKind(t, signs(soon(t), b, m, p256), fault.DeviceFailed)
	wantState(t, b, keys.StateFailed)
	proxy.SetScript(nil)
	mustSign(t, b, m, p256)
	wantState(t, b, keys.StateReady)
}

func TestFullDevice(t *testing.T) {
	for _, rc := range []tpm2.TPMRC{tpm2.TPMRCObjectMemory, tpm2.TPMRCObjectHandles} {
		b, proxy, _ := behind(t, true)
		m := create(t, b, es256)
		fresh := open(t, proxied(proxy, true))
		proxy.SetScript(swtpm.Always(tpm2.TPMCCCreatePrimary, swtpm.Fate(rc)))
		err := signs(soon(t), fresh, m, p256)
		wantKind(t, err, fault.Busy)
		if e, _ := fault.AsError(err); e.RetryAfter <= 0 || !contains(e.Message, codeName(rc)) {
			t.Errorf("got %q, retry after %v, want the code's name and a time", e.Message, e.RetryAfter)
		}
		if got := fresh.state(); got != keys.StateBusy {
			t.Errorf("got state %q, want busy", got)
		}
		proxy.SetScript(nil)
		mustSign(t, fresh, m, p256)
		wantState(t, fresh, keys.StateReady)
	}
}

func TestRepeatedCommands(t *testing.T) {
	for _, rc := range []tpm2.TPMRC{
		tpm2.TPMRCRetry, tpm2.TPMRCYielded, tpm2.TPMRCTesting, tpm2.TPMRCNVRate, tpm2.TPMRCCanceled,
	} {
		t.Run(rc.Error(), func(t *testing.T) {
			t.Parallel()
			b, proxy, _ := behind(t, false)
			m := create(t, b, es256)
			proxy.SetScript(swtpm.First(3, tpm2.TPMCCSign, swtpm.Fate(rc)))
			mustSign(t, b, m, p256)
			proxy.SetScript(swtpm.Always(tpm2.TPMCCSign, swtpm.Fate(rc)))
			err := signs(within(t, time.Second), b, m, p256)
			wantKind(t, err, fault.Busy)
			if !contains(err.Error(), rc.Error()) {
				t.Errorf("got %q, want it to name %v", err, rc)
			}
			proxy.SetScript(nil)
			mustSign(t, b, m, p256)
		})
	}
}

func TestClearedDevice(t *testing.T) {
	device := swtpm.Start(t)
	proxy := swtpm.NewProxy(t, device, swtpm.Options{})
	b := open(t, proxied(proxy, false))
	old := create(t, b, es256)
	proxy.Close()
	device.Clear()
	again := swtpm.NewProxy(t, device, swtpm.Options{})
	b.dial = func(ctx context.Context) (Conn, error) { return dialSocket(ctx, again.Path) }
	for range 3 {
		err := signs(soon(t), b, old, p256)
		wantKind(t, err, fault.IdentityChanged)
		if e, _ := fault.AsError(err); !contains(e.Hint, "enrol") {
			t.Errorf("got hint %q, want the way to a new key", e.Hint)
		}
	}
	wantState(t, b, keys.StateIdentityChanged)
	fresh := create(t, b, es256)
	mustSign(t, b, fresh, p256)
}

func TestSwappedDevice(t *testing.T) {
	device, other := swtpm.Start(t), swtpm.Start(t)
	b := open(t, Config{Device: device.Device()})
	asked := es256
	asked.Persistent = true
	m, persistent := create(t, b, es256), create(t, b, asked)
	home := device.Dir
	device.Kill()
	other.Kill()
	device.RestartIn(other.Dir)
	wantKind(t, signs(soon(t), b, m, p256), fault.IdentityChanged)
	wantKind(t, signs(soon(t), b, persistent, p256), fault.IdentityChanged)
	wantState(t, b, keys.StateIdentityChanged)
	device.Kill()
	device.RestartIn(home)
	mustSign(t, b, m, p256)
	mustSign(t, b, persistent, p256)
	wantState(t, b, keys.StateReady)
}
