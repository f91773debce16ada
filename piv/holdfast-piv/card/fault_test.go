package card

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/holdfast-piv/pcsc"
	"holdfast/piv/wire"
)

// TestPIVGo holds piv-go to what is read out of its errors.
func TestPIVGo(t *testing.T) {
	t.Setenv("PCSCLITE_CSOCK_NAME", t.TempDir()+"/none")
	_, err := piv.Open("none")
	if code, ok := codeOf(err); !ok || code != pcsc.NoService {
		t.Errorf("without pcscd: %v (%v), want no service", err, code)
	}
	if _, err := pcsc.Connect("none"); KindOf("none", err) != fault.DeviceAbsent {
		t.Error(err)
	}
}

// KindOf is the kind that Fault gives.
func KindOf(reader string, err error) fault.Kind { return fault.KindOf(Fault(reader, err)) }

func TestFault(t *testing.T) {
	for code, want := range map[pcsc.Code]fault.Kind{
		pcsc.NoService: fault.DeviceAbsent, pcsc.ServiceStopped: fault.DeviceAbsent, pcsc.SecurityViolation: fault.DeviceAbsent,
		pcsc.NoReaders: fault.DeviceAbsent, pcsc.UnknownReader: fault.DeviceAbsent, pcsc.ReaderUnavailable: fault.DeviceAbsent,
		pcsc.NoSmartcard: fault.DeviceAbsent, pcsc.RemovedCard: fault.DeviceAbsent, pcsc.ResetCard: fault.DeviceAbsent, pcsc.InvalidHandle: fault.DeviceAbsent,
		pcsc.SharingViolation: fault.Busy, pcsc.UnresponsiveCard: fault.DeviceFailed, pcsc.NotTransacted: fault.DeviceFailed, 0x80100014: fault.DeviceFailed,
	} {
		e, ok := fault.AsError(Fault("reader", fmt.Errorf("step: %w", code)))
		if !ok || e.Kind != want || e.Message == "" || e.Advice() == "" {
			t.Errorf("%v: %+v, want %s", code, e, want)
		}
	}
	if e, _ := fault.AsError(Fault("r", statusError(0x6f00))); e.Kind != fault.DeviceFailed || !strings.Contains(e.Message, "6f00") {
		t.Errorf("%+v", e)
	}
	if e, _ := fault.AsError(Fault("r", errors.New("odd"))); e.Kind != fault.DeviceFailed {
		t.Errorf("%+v", e)
	}
}

// TestRefused: a card that refuses a command works.
func TestRefused(t *testing.T) {
	for status, want := range map[uint16]fault.Kind{
		0x6700: fault.Unsupported, 0x6982: fault.Unsupported, 0x6983: fault.PINBlocked, 0x6985: fault.Unsupported, 0x6a80: fault.Unsupported, 0x6a81: fault.Unsupported,
		0x6a82: fault.Unsupported, 0x6a84: fault.Unsupported, 0x6a86: fault.Unsupported, 0x6a88: fault.Unsupported, 0x6b00: fault.Unsupported, 0x6d00: fault.Unsupported,
		0x6e00: fault.Unsupported, 0x6581: fault.DeviceFailed, 0x6f00: fault.DeviceFailed, 0x6400: fault.DeviceFailed,
	} {
		if e, _ := fault.AsError(answered(status)); e.Kind != want || e.Advice() == "" {
			t.Errorf("%04x: %+v, want %s", status, e, want)
		}
	}
}

// TestLateAnswer: a card of another maker reports a touch that did not come by any status.
func TestLateAnswer(t *testing.T) {
	s := &Session{log: slog.New(slog.DiscardHandler), serial: 7}
	for _, test := range []struct {
		policy keys.Policy
		status uint16
		after  time.Duration
		want   fault.Kind
	}{
		{keys.PolicyAlways, 0x6985, 6 * time.Second, fault.TouchTimeout}, {keys.PolicyCached, 0x6f00, 15 * time.Second, fault.TouchTimeout},
		{keys.PolicyAlways, 0x6985, time.Second, fault.Unsupported}, {keys.PolicyNever, 0x6985, 6 * time.Second, fault.Unsupported},
		{keys.PolicyAlways, 0x6982, time.Second, fault.TouchTimeout},
	} {
		err := s.unsigned(&wire.Request{Slot: "9a", TouchPolicy: test.policy}, test.status, test.after)
		if fault.KindOf(err) != test.want {
			t.Errorf("%04x after %v with touch %s: %v, want %s", test.status, test.after, test.policy, err, test.want)
		}
	}
}

func TestNotPIV(t *testing.T) {
	for status, want := range map[uint16]bool{statusNotFound: true, statusNoInstruction: true, statusNoClass: true, 0x6f00: false} {
		_, named := fault.AsError(notPIV("reader", fmt.Errorf("select: %w", statusError(status))))
		if named != want {
			t.Errorf("%04x: %v", status, named)
		}
	}
}

func TestVersions(t *testing.T) {
	s := &Session{firmware: piv.Version{Major: 5, Minor: 3, Patch: 1}}
	for _, v := range []struct {
		major, minor, patch int
		want                bool
	}{{5, 3, 1, true}, {5, 3, 2, false}, {5, 4, 0, false}, {6, 0, 0, false}, {5, 3, 0, true}, {5, 2, 9, true}, {4, 9, 9, true}} {
		if got := s.since(v.major, v.minor, v.patch); got != v.want {
			t.Errorf("%s since %d.%d.%d: %v", s.version(), v.major, v.minor, v.patch, got)
		}
	}
}
