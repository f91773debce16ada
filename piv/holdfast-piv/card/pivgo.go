package card

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/piv/holdfast-piv/pcsc"
)

// piv-go does not export its connection, which is exclusive. Our own commands would
// have to close it first, and the card could be exchanged in between. So this file
// reads two numbers from piv-go's structs by reflection. That needs no unsafe, changes
// nothing, and fails when the structs differ from those of v2.6.0.

var errPIVGo = errors.New("holdfast-piv does not support this version of piv-go")

// borrow returns the PC/SC connection of yk: YubiKey.h.h.
func borrow(yk *piv.YubiKey) (*pcsc.Card, error) {
	v := reflect.ValueOf(yk)
	for range 2 {
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return nil, errPIVGo
		}
		v = v.Elem().FieldByName("h")
	}
	if !v.IsValid() || !v.CanInt() {
		return nil, errPIVGo
	}
	return pcsc.Borrow(v.Int()), nil
}

// codeOf returns the PC/SC code in err's chain, either ours or piv-go's scErr.rc.
func codeOf(err error) (pcsc.Code, bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		if code, ok := err.(pcsc.Code); ok {
			return code, true
		}
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct || v.Type().Name() != "scErr" {
			continue
		}
		if rc := v.FieldByName("rc"); rc.IsValid() && rc.CanInt() {
			return pcsc.Code(uint32(rc.Int())), true
		}
	}
	return 0, false
}

// statusOf returns the status word in err's chain, either ours or piv-go's.
func statusOf(err error) (uint16, bool) {
	var s interface{ Status() uint16 }
	if errors.As(err, &s) {
		return s.Status(), true
	}
	return 0, false
}

// A statusError is an answer of the card that is not 9000.
type statusError uint16

func (s statusError) Status() uint16 { return uint16(s) }
func (s statusError) Error() string  { return fmt.Sprintf("the card answers %04x", uint16(s)) }
