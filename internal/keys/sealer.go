package keys

import (
	"context"
	"encoding/json"
	"fmt"

	"holdfast/internal/fault"
)

// A Sealer is a [Backend] that also keeps small secrets: what it seals can be
// opened on the same device alone, and by whoever may use that device. It is
// for the keys of other programs that must be in memory while they are used,
// never for a key that the device could use itself.
//
// Like a key's [Material], a sealed secret is passed around as what has to be
// stored, and the device holds nothing of it between calls.
type Sealer interface {
	// Seal encrypts a secret to the device and returns what Unseal wants. The
	// secret does not leave this process in clear, on the device's bus either. One
	// that [CheckSecret] refuses is a bad-request [fault.Error]. The caller wipes secret.
	Seal(ctx context.Context, secret []byte) (json.RawMessage, error)

	// Unseal returns the secret, which is the caller's to wipe. It is an
	// identity-changed [fault.Error] on another device or after a clear, and a
	// bad-request or key-lost one for what Seal did not return.
	Unseal(ctx context.Context, sealed json.RawMessage) ([]byte, error)
}

// MaxSecret is the longest secret that can be sealed, in bytes: MAX_SYM_DATA of
// every TPM (TPM 2.0 Part 2, section 11.1.13).
const MaxSecret = 128

// CheckSecret returns a bad-request [fault.Error] unless secret has 1 to [MaxSecret]
// bytes.
func CheckSecret(secret []byte) error {
	if len(secret) == 0 || len(secret) > MaxSecret {
		return &fault.Error{
			Kind: fault.BadRequest, Message: fmt.Sprintf("a secret of %d bytes cannot be sealed", len(secret)),
			Hint: fmt.Sprintf("1 to %d bytes: seal a key, and encrypt the rest with it", MaxSecret),
		}
	}
	return nil
}
