package keys

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"holdfast/internal/fault"
)

// A Backend makes keys on one device and signs with them. It is safe for concurrent
// use, although the agent serialises device work through its queue. Every method
// stops when ctx ends, leaves the device usable for the next call, and returns a
// [fault.Error] whose kind names the failure.
//
// Callers pass a key as its [Material]: the backend alone owns device handles and
// decides which keys stay loaded. Package keystest tests the behaviour that all
// backends share.
type Backend interface {
	// Name is the backend's name in key records and on the wire: "tpm", "piv".
	Name() string

	// Create makes a new key inside the device, checks that it fits the
	// template and cannot leave the device, and returns its material. When it fails,
	// it leaves nothing in the device.
	Create(ctx context.Context, t Template) (Material, error)

	// Persist finishes a key that Create or Import made for a persistent template,
	// by putting it at the place that its material names. The caller stores the material
	// first: a crash before Persist leaves nothing in the device that no record names,
	// and a crash after it leaves a key that Delete removes. Other keys need no call.
	Persist(ctx context.Context, m Material) error

	// Import takes a key file in the backend's own exchange format (for a TPM:
	// TSS2 PRIVATE KEY PEM) for a key of template t. A key that was not made
	// inside the device, that can do more than sign, or that has no PIN and yet
	// counts for the device's lockout, is rejected unless allowImported is set, and its
	// material then says Imported. A file that says wrongly that its key has no PIN is
	// a pin-required [fault.Error].
	Import(ctx context.Context, t Template, file []byte, allowImported bool) (Material, error)

	// Export returns the key in the exchange format of Import. The file is of no
	// use without the device.
	Export(m Material) ([]byte, error)

	// Check loads the key and verifies everything that Create did: attributes,
	// public key, parent. It does not sign.
	Check(ctx context.Context, m Material) error

	// Sign signs digest, which is s.Hash()'s size, with one device command in the
	// steady state. ECDSA signatures are ASN.1 DER. The caller verifies.
	Sign(ctx context.Context, m Material, s Scheme, digest []byte) ([]byte, error)

	// Unlock proves pin to the device and lets Sign use the key until the given
	// time. The PIN is not kept. A wrong PIN is a pin-required [fault.Error]; a try that
	// would come too near the device's lockout is pin-blocked and not made.
	Unlock(ctx context.Context, m Material, pin []byte, until time.Time) error

	// Lock drops the authorisation that Unlock keeps, for one key, or for all when m is
	// nil.
	Lock(m *Material)

	// Delete removes what the device itself holds of the key, if anything.
	Delete(ctx context.Context, m Material) error

	// Status reports the device's state. When ctx ends first, it
	// reports the last known state.
	Status(ctx context.Context) Status

	// Close closes the device.
	Close() error
}

// A Template says what key to make.
type Template struct {
	Purpose    Purpose
	Algorithm  Algorithm
	RSABits    int    // with RS256: 2048, 3072 or 4096; 0 means 2048
	Persistent bool   // keep the key loaded in the device across restarts (TPM: a persistent handle)
	PIN        []byte // when not empty: the PIN that Unlock needs; see CheckPIN. On a card, the card's PIN: all its keys share one
	Card       OnCard // for backends whose devices are cards; the zero value for all others
}

// Material is everything that must be stored to use a key again.
type Material struct {
	Backend  string          `json:"backend"`            // Backend.Name of the backend that made it
	Public   []byte          `json:"public"`             // SubjectPublicKeyInfo, DER
	Device   json.RawMessage `json:"device"`             // the backend's own; opaque to all other code, holds no usable secret
	PIN      bool            `json:"pin,omitempty"`      // the key needs a PIN
	Imported bool            `json:"imported,omitempty"` // not made inside the device, able to do more than sign, or foreign: see Import
	Card     *Place          `json:"card,omitempty"`     // where on which card it is; nil for other devices
}

// MaxPIN is the longest PIN, in bytes: a TPM key's authorisation value is at
// most as long as its name algorithm's digest (TPM 2.0 Part 1, section 19.6.4).
const MaxPIN = 32

// CheckPIN returns a bad-request [fault.Error] unless pin has 4 to [MaxPIN] bytes and
// none of them is zero: TPMs strip trailing zeros, and libraries disagree about
// the others.
func CheckPIN(pin []byte) error {
	if len(pin) < 4 || len(pin) > MaxPIN || slices.Contains(pin, 0) {
		return &fault.Error{Kind: fault.BadRequest, Message: "a PIN has 4 to 32 bytes and no zero byte"}
	}
	return nil
}

// A State is the state of a device.
type State string

// The states of a device.
const (
	StateReady           State = "ready"
	StateAbsent          State = "absent"           // no such device, or it cannot be opened
	StateBusy            State = "busy"             // other programs occupy its slots
	StateLocked          State = "locked"           // dictionary-attack lockout: keys with a PIN wait, other keys sign
	StateWedged          State = "wedged"           // it accepts commands and does not answer
	StateFailed          State = "failed"           // it reports a failure (failure mode)
	StateIdentityChanged State = "identity-changed" // cleared or swapped: keys made before cannot be used on it
	StateUnopened        State = "unopened"         // it has given no answer since the agent started
)

// Status describes a device.
type Status struct {
	Backend     string       `json:"backend"`
	Device      string       `json:"device"`                // its name in the configuration: tpm:/dev/tpmrm0, swtpm:/run/x/s
	State       State        `json:"state"`                 //
	Since       time.Time    `json:"since"`                 // when it entered the state
	Reason      string       `json:"reason,omitempty"`      // one fact, when the state is not ready
	Hint        string       `json:"hint,omitempty"`        // the next step in words; empty where Next says it, or there is none
	Next        fault.Next   `json:"next,omitzero"`         // the next step, where programs act on it
	LockedUntil *time.Time   `json:"lockedUntil,omitempty"` // with StateLocked, when known
	Software    bool         `json:"software,omitempty"`    // a software TPM: no hardware protects its keys
	TriesLeft   *int         `json:"triesLeft,omitempty"`   // wrong PINs until the device locks, when known
	Maker       string       `json:"maker,omitempty"`       // manufacturer and firmware version
	Can         []Capability `json:"can,omitempty"`         // the keys that it can make; empty until the device was queried
	Units       []Status     `json:"units,omitempty"`       // of a Divided backend: each device by itself, its Device naming it
}

// A Capability is one kind of key that a device can make.
type Capability struct {
	Algorithm Algorithm `json:"algorithm"`
	RSABits   int       `json:"rsaBits,omitempty"`
}
