package keystest

import (
	"context"
	"encoding/json"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

var _ keys.Sealer = (*Memory)(nil)

// forSecrets keeps sealed secrets apart from keys, which the same key encrypts.
const forSecrets = "sealed secret"

// Seal implements keys.Sealer.
func (m *Memory) Seal(ctx context.Context, secret []byte) (json.RawMessage, error) {
	if err := keys.CheckSecret(secret); err != nil {
		return nil, err
	}
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	return json.Marshal(record{Device: m.id, Sealed: m.aead().Seal(nil, nil, secret, []byte(forSecrets))})
}

// Unseal implements keys.Sealer.
func (m *Memory) Unseal(ctx context.Context, sealed json.RawMessage) ([]byte, error) {
	var r record
	if err := json.Unmarshal(sealed, &r); err != nil {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: "the record is damaged", Err: err}
	}
	if r.Device != m.id {
		return nil, &fault.Error{Kind: fault.IdentityChanged, Message: "the secret was sealed on another device"}
	}
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	secret, err := m.aead().Open(nil, nil, r.Sealed, []byte(forSecrets))
	if err != nil {
		return nil, &fault.Error{Kind: fault.KeyLost, Message: "the device does not open the secret", Err: err}
	}
	return secret, nil
}
