package card

import (
	"errors"
	"fmt"
	"reflect"

	"holdfast/piv/holdfast-piv/pcsc"
)

// codeOf returns the PC/SC code in err's chain, either ours or piv-go's scErr.rc, which
// piv-go does not export: TestPIVGo holds it to v2.6.0's.
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
