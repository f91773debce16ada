package card

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/internal/fault"
	"holdfast/piv/holdfast-piv/pcsc"
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
