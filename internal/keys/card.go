package keys

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"holdfast/internal/fault"
)

// A Policy says when a card needs the user for the use of one key: the PIN or a
// touch. The card fixes it when the key is made.
type Policy string

// The policies. Once applies to PINs and means once after the card was opened;
// Cached applies to touches and means not again within 15 s.
const (
	PolicyNever  Policy = "never"
	PolicyOnce   Policy = "once"
	PolicyAlways Policy = "always"
	PolicyCached Policy = "cached"
)

// PINPolicies lists the PIN policies that a new key can have.
func PINPolicies() []Policy { return []Policy{PolicyNever, PolicyOnce, PolicyAlways} }

// TouchPolicies lists the touch policies that a new key can have.
func TouchPolicies() []Policy { return []Policy{PolicyNever, PolicyAlways, PolicyCached} }

// OnCard names the card and slot of a new key, its policies, and the secrets that the
// card needs to make it.
type OnCard struct {
	Serial          uint32 // 0: the only card there is
	Slot            string // "": a free slot
	PINPolicy       Policy // "": once when the template has a PIN, else never
	TouchPolicy     Policy // "": never
	Overwrite       bool   // the slot may hold a key, which is lost
	AllowUnattested bool   // the card need not prove that the key was made inside it
	PIN             []byte // the card's PIN: opens the management key that the card keeps; Template.PIN serves too
	ManagementKey   []byte // replaces the one that the card keeps; may be nil
}

// Place is the card and slot of a key, and its policies.
type Place struct {
	Serial      uint32 `json:"serial"`
	Slot        string `json:"slot"` // 9a, 9c, 9d, 9e, 82 to 95
	PINPolicy   Policy `json:"pinPolicy"`
	TouchPolicy Policy `json:"touchPolicy"`
	Attested    bool   `json:"attested,omitempty"` // the card has proved that it made the key
}

// String returns the place for people: "card 12345678, slot 9a".
func (p Place) String() string { return fmt.Sprintf("card %d, slot %s", p.Serial, p.Slot) }

// ParseSlot returns the number of a PIV slot for keys of the user
// (NIST SP 800-73-4, part 1, table 4b): 9a, 9c, 9d, 9e and the retired 82 to
// 95; or a bad-request [fault.Error].
func ParseSlot(s string) (byte, error) {
	n, err := strconv.ParseUint(s, 16, 8)
	known := n == 0x9a || n >= 0x9c && n <= 0x9e || n >= 0x82 && n <= 0x95
	if err != nil || !known || fmt.Sprintf("%02x", n) != s {
		return 0, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("%.20q is not a slot for keys", s), Hint: "9a, 9c, 9d, 9e, or 82 to 95"}
	}
	return byte(n), nil
}

// CheckCardPIN returns a bad-request [fault.Error] unless pin can be the PIN or PUK of
// a PIV card: 6 to 8 printable ASCII characters (NIST SP 800-73-4, part 2,
// section 2.4.3, and what YubiKeys take besides digits).
func CheckCardPIN(pin []byte) error {
	odd := func(b byte) bool { return b <= ' ' || b > '~' }
	if len(pin) < 6 || len(pin) > 8 || slices.ContainsFunc(pin, odd) {
		return &fault.Error{Kind: fault.BadRequest, Message: "a card's PIN or PUK has 6 to 8 digits, letters or signs"}
	}
	return nil
}

// A Divided backend's keys live on several devices that work side by side, such
// as cards: one card may wait for a touch while another signs.
type Divided interface {
	Backend

	// Unit names the device that m is on. It is the same for every key of one
	// device, asks nothing of the device, and is empty for material that is not
	// this backend's.
	Unit(m Material) string

	// OnChange registers f, which is called with the unit's name when a device was
	// inserted or removed, one call at a time. Keys on a removed device are locked
	// before the call. f must return soon and must not call the backend.
	OnChange(f func(unit string, gone bool))
}

// A CardHolder manages whole cards, rather than keys. Like those of a
// [Backend], its methods are safe for concurrent use, stop when ctx ends, and return
// a [fault.Error]. The caller wipes the PINs that it passes.
type CardHolder interface {
	Divided

	// Cards describes every card, and every reader whose content cannot be
	// determined.
	Cards(ctx context.Context) ([]Card, error)

	// SetUp replaces PIN, PUK and management key. The new management key is random
	// and stays on the card, where the PIN opens it.
	SetUp(ctx context.Context, serial uint32, s CardSetUp) error

	// ChangePIN replaces the card's PIN, ChangePUK its PUK. Neither uses the
	// last try.
	ChangePIN(ctx context.Context, serial uint32, old, new []byte) error
	ChangePUK(ctx context.Context, serial uint32, old, new []byte) error

	// Unblock gives a card whose PIN is blocked, or forgotten, a new one.
	Unblock(ctx context.Context, serial uint32, puk, new []byte) error

	// TriesLeft returns how many wrong PINs m's card accepts before it blocks the PIN;
	// nil when the card cannot tell. It never uses the last try. It fails as Check does
	// when the card, or the key on it, is not there.
	TriesLeft(ctx context.Context, m Material) (*int, error)

	// StoreCertificate puts a certificate, DER, into m's slot. It takes the card's PIN,
	// which gives access to a management key that the card keeps, or the management key.
	// Without either the key must be unlocked, or the error is a pin-required [fault.Error].
	StoreCertificate(ctx context.Context, m Material, certificate, pin, management []byte) error
}

// CardSetUp holds the values to set up a card with. The old values may be empty where
// the card reports that it has the factory's.
type CardSetUp struct {
	OldPIN, OldPUK, OldManagementKey []byte
	PIN, PUK                         []byte
}

// Card describes one card, or a reader without a usable card.
type Card struct {
	Serial   uint32 // 0: none could be read
	Reader   string
	Firmware string     // of the PIV applet, such as 5.4.3
	State    State      // ready; locked when its PIN has no try left that may be spent; absent when the reader holds no PIV card; busy when another program holds it; failed
	Reason   string     // one fact, when the state is not ready
	Hint     string     // the next step in words; empty where Next says it
	Next     fault.Next // the next step, where programs act on it

	PINTries, PUKTries                        *int  // left; nil: unknown
	DefaultPIN, DefaultPUK, DefaultManagement *bool // whether it is the factory's; nil: the card cannot tell
	ProtectedManagement                       bool  // the management key is kept on the card, where the PIN opens it
	Attests                                   *bool // it can prove that it made a key, by a chain that is trusted here; nil: not asked
	Notes                                     []CardNote
	Slots                                     []CardSlot // those that hold a key or a certificate
}

// CardNote is one fact about a card that its owner should know, and the next
// step: in words, and typed where programs act on it.
type CardNote struct {
	Message, Hint string
	Next          fault.Next
}

// CardSlot is one slot of a card.
type CardSlot struct {
	Slot        string
	Algorithm   Algorithm // "" when the key is of another kind, or none
	RSABits     int
	PINPolicy   Policy // "" when the card cannot tell
	TouchPolicy Policy
	Generated   *bool  // made inside the card; nil: the card cannot tell
	Public      []byte // SubjectPublicKeyInfo, DER; nil when the card cannot tell
	Certificate []byte // DER; nil when there is none
}

// MaxTouch is how long a card waits for a touch.
const MaxTouch = 15 * time.Second
