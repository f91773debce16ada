package attestation

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"holdfast/internal/fault"
)

// Firmware is a YubiKey's firmware version.
type Firmware struct{ Major, Minor, Patch uint8 }

// ParseFirmware reads a version such as 5.4.3: three decimal numbers up to 255,
// written the shortest way. Anything else is a bad-request [fault.Error].
func ParseFirmware(s string) (Firmware, error) {
	var numbers [3]uint8
	parts := strings.SplitN(s, ".", 4)
	ok := len(parts) == 3
	for i := 0; ok && i < 3; i++ {
		n, err := strconv.ParseUint(parts[i], 10, 8)
		ok = err == nil && parts[i] == strconv.FormatUint(n, 10)
		numbers[i] = uint8(n)
	}
	if !ok {
		return Firmware{}, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("%.20q is not a firmware version", s), Hint: "three numbers, such as 5.4.3"}
	}
	return Firmware{numbers[0], numbers[1], numbers[2]}, nil
}

// String returns the version as [ParseFirmware] reads it.
func (f Firmware) String() string { return fmt.Sprintf("%d.%d.%d", f.Major, f.Minor, f.Patch) }

// Less reports whether f is older than g.
func (f Firmware) Less(g Firmware) bool {
	return cmp.Or(cmp.Compare(f.Major, g.Major), cmp.Compare(f.Minor, g.Minor), cmp.Compare(f.Patch, g.Patch)) < 0
}
