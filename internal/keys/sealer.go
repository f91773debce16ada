package keys

import (
	"context"
	"encoding/json"
	"fmt"

	"holdfast/internal/fault"
)

// A Sealer is a [Backend] that also seals small secrets: a sealed secret can be
// opened only on the same device, by any caller that may use that device. It is for
// keys of other programs that must be in memory while they are used, never for a key
// that the device could use itself.
//
// Like a key's [Material], a sealed secret is data for the caller to store;
// the device keeps nothing between calls.
type Sealer interface {
	// Seal encrypts a secret to the device and returns the input of Unseal. The
	// secret does not leave this process in clear text, not even on the device's bus. One
	// that [CheckSecret] refuses is a bad-request [fault.Error]. The caller wipes secret.
	Seal(ctx context.Context, secret []byte) (json.RawMessage, error)

	// Unseal returns the secret; the caller wipes it. The error is an
	// identity-changed [fault.Error] on another device or after a clear, and a
	// bad-request or key-lost one for data that Seal did not return.
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
