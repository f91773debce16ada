package card

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/agent/keys"
	"holdfast/piv/holdfast-piv/pcsc"
)

// TestPIVGo holds piv-go to the two things that are read out of it.
func TestPIVGo(t *testing.T) {
	connection, ok := reflect.TypeOf(piv.YubiKey{}).FieldByName("h")
	if !ok || connection.Type.Kind() != reflect.Pointer {
		t.Fatal("YubiKey has no pointer h")
	}
	handle, ok := connection.Type.Elem().FieldByName("h")
	if !ok || handle.Type.Kind() != reflect.Int64 && handle.Type.Kind() != reflect.Int32 {
		t.Fatalf("its h is of kind %v", handle.Type)
	}
	if c, err := borrow(&piv.YubiKey{}); err == nil {
		t.Errorf("a connection out of nothing: %v", c)
	}
	if c, err := borrow(nil); err == nil {
		t.Errorf("a connection out of nothing: %v", c)
	}
	t.Setenv("PCSCLITE_CSOCK_NAME", t.TempDir()+"/none")
	_, err := piv.Open("none")
	if code, ok := codeOf(err); !ok || code != pcsc.NoService {
		t.Errorf("without pcscd: %v (%v), want no service", err, code)
	}
	if leaks(err) {
		t.Errorf("nothing was opened: %v", err)
	}
	if _, err := pcsc.Connect("none"); KindOf("none", err) != keys.DeviceAbsent {
		t.Error(err)
	}
}

// KindOf is the kind that Fault gives.
func KindOf(reader string, err error) keys.Kind { return keys.KindOf(Fault(reader, err)) }

func TestFault(t *testing.T) {
	for code, want := range map[pcsc.Code]keys.Kind{
		pcsc.NoService: keys.DeviceAbsent, pcsc.ServiceStopped: keys.DeviceAbsent, pcsc.SecurityViolation: keys.DeviceAbsent,
		pcsc.NoReaders: keys.DeviceAbsent, pcsc.UnknownReader: keys.DeviceAbsent, pcsc.ReaderUnavailable: keys.DeviceAbsent,
		pcsc.NoSmartcard: keys.DeviceAbsent, pcsc.RemovedCard: keys.DeviceAbsent, pcsc.ResetCard: keys.DeviceAbsent, pcsc.InvalidHandle: keys.DeviceAbsent,
		pcsc.SharingViolation: keys.Busy, pcsc.UnresponsiveCard: keys.DeviceFailed, pcsc.NotTransacted: keys.DeviceFailed, 0x80100014: keys.DeviceFailed,
	} {
		e, ok := keys.AsError(Fault("reader", fmt.Errorf("step: %w", code)))
		if !ok || e.Kind != want || e.Message == "" || e.Hint == "" {
			t.Errorf("%v: %+v, want %s", code, e, want)
		}
	}
	if e, _ := keys.AsError(Fault("r", statusError(0x6f00))); e.Kind != keys.DeviceFailed || !strings.Contains(e.Message, "6f00") {
		t.Errorf("%+v", e)
	}
	if e, _ := keys.AsError(Fault("r", errors.New("odd"))); e.Kind != keys.DeviceFailed {
		t.Errorf("%+v", e)
	}
}

func TestNotPIV(t *testing.T) {
	for status, want := range map[uint16]bool{statusNotFound: true, statusNoInstruction: true, statusNoClass: true, 0x6f00: false} {
		_, named := keys.AsError(notPIV("reader", fmt.Errorf("select: %w", statusError(status))))
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
