package keystest

import (
	"context"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// timely notes a call that takes longer than limit.
func timely(t *testing.T, what string, limit time.Duration, call func()) {
	t.Helper()
	start := time.Now()
	call()
	if took := time.Since(start); took > limit {
		t.Errorf("%s: came back after %v, want %v", what, took, limit)
	}
}

func testCancelledBefore(t *testing.T, h Harness) {
	s := open(t, h)
	m := s.create(baseline())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	calls := map[string]func() error{
		"create": func() error { _, err := s.Create(ctx, baseline()); return err },
		"check":  func() error { return s.Check(ctx, m) },
		"sign":   func() error { return signs(ctx, s, m, keys.TLSClient) },
	}
	for name, call := range calls {
		timely(t, name, prompt, func() {
			if err := call(); err == nil {
				t.Errorf("%s with a cancelled context: got success", name)
			}
		})
	}
	s.wantSigns(m)
}

// testStalled: while the device does not answer, calls come back when their
// context ends, and the first call after it answers again succeeds.
func testStalled(t *testing.T, h Harness) {
	if h.Stall == nil {
		return
	}
	s := open(t, h)
	m, other := s.create(baseline()), s.create(baseline())
	s.wantSigns(m)
	release := h.Stall(t)
	for _, call := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"sign", func(ctx context.Context) error { return signs(ctx, s, m, keys.TLSClient) }},
		{"create", func(ctx context.Context) error { _, err := s.Create(ctx, baseline()); return err }},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		timely(t, call.name, prompt, func() {
			wantKind(t, call.name, call.do(ctx), fault.Deadline, fault.DeviceWedged)
		})
		cancel()
	}
	cancelled(t, s, m)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	timely(t, "status", prompt, func() { s.Status(ctx) })
	cancel()
	release()
	s.wantSigns(m)
	s.wantSigns(other)
}

// cancelled: a call that is cancelled while it waits for the device comes back.
func cancelled(t *testing.T, s *subject, m keys.Material) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	timely(t, "cancelled sign", prompt, func() {
		if err := signs(ctx, s, m, keys.TLSClient); err == nil {
			t.Error("a stalled device has signed")
		}
	})
}

func testStatus(t *testing.T, h Harness) {
	s := open(t, h)
	s.create(baseline())
	got := s.Status(s.ctx())
	if got.Backend != s.Name() || got.Device == "" || got.State != keys.StateReady {
		t.Errorf("got backend %q, device %q, state %q, want %q, a device, ready", got.Backend, got.Device, got.State, s.Name())
	}
	if got.Since.IsZero() || got.Since.After(time.Now()) {
		t.Errorf("since: got %v, want a time in the past", got.Since)
	}
	for _, want := range h.Can {
		found := false
		for _, c := range got.Can {
			found = found || c == want
		}
		if !found {
			t.Errorf("can: got %v, want %v in it", got.Can, want)
		}
	}
}

// testReopen: a key outlives the backend that made it.
func testReopen(t *testing.T, h Harness) {
	s := open(t, h)
	m := s.create(baseline())
	s.wantSigns(m)
	s.Close()
	s = open(t, h)
	s.wantSigns(stored(t, m))
}

func testClose(t *testing.T, h Harness) {
	s := open(t, h)
	m := s.create(baseline())
	s.wantSigns(m)
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := signs(s.ctx(), s, m, keys.TLSClient); err == nil {
		t.Error("sign after close: got success")
	}
	if err := s.Check(s.ctx(), m); err == nil {
		t.Error("check after close: got success")
	}
	if _, err := s.Create(s.ctx(), baseline()); err == nil {
		t.Error("create after close: got success")
	}
	s.Lock(nil)
	s.Status(s.ctx())
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}
