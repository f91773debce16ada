// Package wire is the protocol between the agent's PIV backend and its child,
// holdfast-piv, over the child's standard input and output. The child owns the
// connection to the card, and can hang, crash or send malformed messages: the backend
// bounds its input, and kills the child.
//
// Start at [Request]. Each message is a length and that many bytes of JSON; see
// [Write] and [Read]. The backend sends one request at a time and waits for the reply
// with its number, with one exception: a [Lock] is answered at once, also while
// another request waits for the card.
//
// A child does one of two jobs until it ends, and its first request decides which: it
// watches the readers ([Readers]), or it holds one card.
package wire

import (
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// An Op is the operation of a request.
type Op string

// The operations. All but Readers and Lock concern the card that Request.Reader and
// Request.Serial name. A child that finds another serial number answers key-mismatch
// first, and sends that card no PIN.
const (
	Readers     Op = "readers"     // the readers and whether a card is in each, once that differs from Request.Known, or after Request.Wait
	Identify    Op = "identify"    // the serial number and firmware of the card in Request.Reader; Serial is ignored
	Inspect     Op = "inspect"     // the whole card: Reply.Card
	Slot        Op = "slot"        // one slot, and with Attest its attestation: Reply.Slot, Reply.Attestation, Reply.Tries; with a PIN, proves it first and does not keep it; without a slot, does only that
	Generate    Op = "generate"    // make a key in Request.Slot: Reply.Slot, Reply.Attestation
	Sign        Op = "sign"        // sign Digest with the key in Slot, whose public key must be Public: Reply.Signature
	Unlock      Op = "unlock"      // prove PIN and keep it for Slot and Public until Until
	Lock        Op = "lock"        // forget the PIN kept for Slot, or all when it is empty
	Certificate Op = "certificate" // put Certificate into Slot
	SetUp       Op = "set-up"      // ManagementKey to one that the card keeps, OldPUK to PUK, Old to PIN; may be repeated after an interruption at any point
	ChangePIN   Op = "change-pin"  // Old to New
	ChangePUK   Op = "change-puk"  // the same with PUKs
	Unblock     Op = "unblock"     // Old is the PUK, New the PIN
)

// A Request asks the child for one operation.
type Request struct {
	ID     uint64 `json:"id"`
	Op     Op     `json:"op"`
	Reader string `json:"reader,omitempty"`
	Serial uint32 `json:"serial,omitempty"`

	Slot        string      `json:"slot,omitempty"`
	Public      []byte      `json:"public,omitempty"` // SubjectPublicKeyInfo, DER
	Scheme      keys.Scheme `json:"scheme,omitempty"`
	Digest      []byte      `json:"digest,omitempty"`
	PINPolicy   keys.Policy `json:"pinPolicy,omitempty"`
	TouchPolicy keys.Policy `json:"touchPolicy,omitempty"`
	Algorithm   string      `json:"algorithm,omitempty"`
	RSABits     int         `json:"rsaBits,omitempty"`
	Overwrite   bool        `json:"overwrite,omitempty"`
	Attest      bool        `json:"attest,omitempty"`
	Certificate []byte      `json:"certificate,omitempty"` // DER

	PIN           []byte    `json:"pin,omitempty"`
	PUK           []byte    `json:"puk,omitempty"`
	ManagementKey []byte    `json:"managementKey,omitempty"`
	Old           []byte    `json:"old,omitempty"`
	OldPUK        []byte    `json:"oldPUK,omitempty"` // with SetUp; Old is then the old PIN
	New           []byte    `json:"new,omitempty"`
	Until         time.Time `json:"until,omitzero"`

	Known []Reader      `json:"known,omitempty"` // with Readers
	Wait  time.Duration `json:"wait,omitempty"`  // the longest, in nanoseconds: with Readers for a change, else for another program's transaction to end
}

// Wipe clears the request's secrets.
func (r *Request) Wipe() {
	for _, secret := range [][]byte{r.PIN, r.PUK, r.ManagementKey, r.Old, r.OldPUK, r.New} {
		clear(secret)
	}
}

// A Reply answers the request with its ID: with an Error, or with the operation's
// results.
type Reply struct {
	ID    uint64 `json:"id"`
	Error *Error `json:"error,omitempty"`

	Readers     []Reader       `json:"readers,omitempty"`
	Serial      uint32         `json:"serial,omitempty"`
	Firmware    string         `json:"firmware,omitempty"`
	Card        *keys.Card     `json:"card,omitempty"`
	Slot        *keys.CardSlot `json:"slot,omitempty"`
	Attestation [][]byte       `json:"attestation,omitempty"` // the slot's certificate, then f9's; DER; absent when the card cannot attest
	Signature   []byte         `json:"signature,omitempty"`   // ECDSA as ASN.1 DER
	Attester    []byte         `json:"attester,omitempty"`    // with Inspect: f9's certificate, DER; absent when the card cannot attest
	Tries       *int           `json:"tries,omitempty"`       // with Slot and Recounted: PIN tries left, if known
	Recounted   bool           `json:"recounted,omitempty"`   // the card has accepted or replaced the PIN: Tries, also an unknown number, replaces the last one
}

// Reader is one reader as pcscd reports it.
type Reader struct {
	Name    string `json:"name"`
	Present bool   `json:"present"` // a card is in it
	Changes uint32 `json:"changes"` // counts insertions and removals
	InUse   bool   `json:"inUse"`   // some program holds the card; a change of it does not end a wait
}

// Error is a fault.Error in a reply, with the PIN tries left if known.
type Error struct {
	Kind         fault.Kind `json:"kind"`
	Message      string     `json:"message"`
	Hint         string     `json:"hint,omitempty"`
	Next         fault.Next `json:"next,omitzero"`
	RetryAfterMS int64      `json:"retryAfterMS,omitempty"`
	Tries        *int       `json:"tries,omitempty"`
	Unsent       bool       `json:"unsent,omitempty"` // no PIN or PUK of this request has reached the card
	Shut         bool       `json:"shut,omitempty"`   // the PIN was right, and a Lock came before it was kept
}
