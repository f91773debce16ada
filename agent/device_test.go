package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/agent/queue"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// fakeBackend is a backend in a state that the test sets. It counts the questions for it.
type fakeBackend struct {
	keys.Backend
	state keys.State
	asked int
}

// Name implements keys.Backend.
func (m *fakeBackend) Name() string { return "fake" }

// Status implements keys.Backend.
func (m *fakeBackend) Status(context.Context) keys.Status {
	m.asked++
	return keys.Status{Backend: "fake", State: m.state}
}

// fakeDevice returns a device, the function that makes it work with a result, and the
// states that it published.
func fakeDevice(t *testing.T, m *fakeBackend) (d *device, work func(error) error, published *[]keys.State) {
	published = new([]keys.State)
	d = newDevice(m, queue.Limits{}, newCounters("test", time.Now()), func(s keys.Status) { *published = append(*published, s.State) })
	t.Cleanup(func() { d.lanes.Close(context.Background()) })
	work = func(err error) error {
		defer synctest.Wait()
		return d.whole().do(t.Context(), queue.Caller{}, func(context.Context) error { return err })
	}
	return d, work, published
}

// An error that may mean another state of the device makes the agent ask, and no other
// error does.
func TestFaultMakesTheAgentLook(t *testing.T) {
	for kind, want := range map[fault.Kind]int{
		fault.DeviceAbsent: 1, fault.DeviceLocked: 1, fault.DeviceWedged: 1, fault.DeviceFailed: 1, fault.IdentityChanged: 1, fault.Busy: 1,
		fault.PINRequired: 0, fault.Deadline: 0, fault.Denied: 0, fault.Internal: 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &fakeBackend{state: keys.StateReady}
			d, work, published := fakeDevice(t, m)
			d.look(t.Context(), time.Second)
			m.state, m.asked = keys.StateFailed, 0
			if err := work(&fault.Error{Kind: kind}); fault.KindOf(err) != kind {
				t.Errorf("%s became %v", kind, err)
			}
			if m.asked != want || len(*published) != want {
				t.Errorf("after %s the device was asked %d times and %d states were published, want %d", kind, m.asked, len(*published), want)
			}
		})
	}
}

// A fault that the device reported before it worked is not shown any more, however
// recent the report is.
func TestWorkMakesAFaultOutdated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &fakeBackend{state: keys.StateFailed}
		d, work, _ := fakeDevice(t, m)
		if s := d.cachedStatus(t.Context(), time.Second); s.State != keys.StateFailed {
			t.Fatalf("the device is %s", s.State)
		}
		m.state = keys.StateReady
		time.Sleep(faultAge / 2)
		if s := d.cachedStatus(t.Context(), time.Second); s.State != keys.StateFailed || m.asked != 1 {
			t.Errorf("the device is %s after %d questions, want the first answer", s.State, m.asked)
		}
		if err := work(nil); err != nil {
			t.Fatal(err)
		}
		if s := d.cachedStatus(t.Context(), time.Second); s.State != keys.StateReady {
			t.Errorf("after work the device is %s", s.State)
		}
	})
}

// silentBackend does not answer before its caller's time is over.
type silentBackend struct{ fakeBackend }

// Status implements keys.Backend.
func (m *silentBackend) Status(ctx context.Context) keys.Status {
	<-ctx.Done()
	return keys.Status{Backend: "fake", Device: "fake:1", State: m.state, Since: time.Now()}
}

// A device that has not answered yet is shown by its name, as not opened.
func TestUnopenedDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &silentBackend{fakeBackend{state: keys.StateReady}}
		d := newDevice(m, queue.Limits{}, newCounters("test", time.Now()), func(keys.Status) {})
		defer d.lanes.Close(context.Background())
		s := d.shownStatus(t.Context(), statusTimeout)
		if s.State != keys.StateUnopened || s.Device != "fake:1" || s.Since.IsZero() || s.Reason == "" || s.Hint == "" {
			t.Errorf("got %+v", s)
		}
		time.Sleep(lookTime)
		synctest.Wait() // the first answer
		if s := d.shownStatus(t.Context(), statusTimeout); s.State != keys.StateReady {
			t.Errorf("after the first answer: got %s", s.State)
		}
		time.Sleep(lookTime) // the question in progress
	})
}
