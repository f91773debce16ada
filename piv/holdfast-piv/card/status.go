package card

import (
	"fmt"

	"holdfast/internal/fault"
)

// Status words (ISO 7816-4, section 5.6; NIST SP 800-73-4 part 2, section 5.6).
const (
	statusLength        = 0x6700
	statusSecurity      = 0x6982 // PIN, touch or management key is missing
	statusBlocked       = 0x6983
	statusConditions    = 0x6985 // conditions of use not satisfied
	statusWrongData     = 0x6a80
	statusNoFunction    = 0x6a81
	statusNotFound      = 0x6a82
	statusNoSpace       = 0x6a84
	statusParameters    = 0x6a86
	statusNoReference   = 0x6a88
	statusNoInstruction = 0x6d00
	statusNoClass       = 0x6e00
)

const (
	otherSlot = "choose another slot, such as --slot 9a; holdfast piv list shows those of the card"
	otherCard = "the card's firmware lacks this; holdfast piv list shows the firmware"
)

// refusalTexts are the messages and hints for status words with which a card refuses a command.
// Such a card works.
var refusalTexts = map[uint16]struct{ message, hint string }{
	statusLength:        {"the card takes no data of this length", otherCard},
	statusSecurity:      {"the card misses its PIN, its management key or a touch", "try again, and touch the card if it blinks"},
	statusConditions:    {"the card does not do this in its present state", "take the card out, put it in again, and try once more"},
	statusWrongData:     {"the card rejects the data of the command", "choose another algorithm, such as --algorithm ES256"},
	statusNoFunction:    {"the card does not support this", otherCard},
	statusNotFound:      {"the card has no such slot or object", otherSlot},
	statusNoSpace:       {"there is no room on the card", "remove certificates or objects that are not needed"},
	statusParameters:    {"the card does not know this slot or algorithm", otherSlot},
	statusNoReference:   {"the card has no such key", otherSlot},
	statusNoInstruction: {"the card does not know this command", otherCard},
	statusNoClass:       {"the card does not know this class of commands", otherCard},
}

// refusing are the classes of status words with which a card that works refuses a command
// (ISO 7816-4, table 5).
var refusing = map[uint16]bool{0x67: true, 0x68: true, 0x69: true, 0x6a: true, 0x6b: true, 0x6c: true, 0x6d: true, 0x6e: true}

// answered is the fault of an unexpected status word. Only a status word that reports a
// defect makes the device fail.
func answered(status uint16) error {
	text, known := refusalTexts[status]
	switch {
	case status == statusBlocked:
		return &fault.Error{Kind: fault.PINBlocked, Message: "the card's PIN is blocked", Next: fault.Next{Do: fault.Unblock}}
	case known:
		return &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("%s (status %04x)", text.message, status), Hint: text.hint}
	case refusing[status>>8]:
		return &fault.Error{Kind: fault.Unsupported, Message: statusError(status).Error(), Hint: otherCard}
	}
	return &fault.Error{Kind: fault.DeviceFailed, Message: statusError(status).Error(), Hint: reinsert}
}
