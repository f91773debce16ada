package tpm

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	keyfile "github.com/foxboron/go-tpm-keyfiles"
	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// A sealed secret is a KeyedHash object that neither signs nor decrypts (TPM 2.0
// Part 1, section 37). Its file is a TSS2 PRIVATE KEY of the type for sealed
// data. It has an empty authorisation value: a value stored beside the object would
// protect nothing, and the TPM's parent key protects the secret. On the bus it is encrypted both ways, in sessions salted to the parent.

var _ keys.Sealer = (*TPM)(nil)

// Seal makes a sealed object and returns it in the form that Unseal takes. It sends
// five commands and leaves nothing in the device.
func (t *TPM) Seal(ctx context.Context, secret []byte) (json.RawMessage, error) {
	if err := keys.CheckSecret(secret); err != nil {
		return nil, err
	}
	var device json.RawMessage
	err := t.run(ctx, requestTimeout, func(ctx context.Context) error {
		l, err := t.sharedLink(ctx)
		if err != nil {
			return err
		}
		return t.withParent(ctx, l, standardParent(), func(p parent) (err error) {
			device, err = t.sealUnder(ctx, l, p, secret)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return device, nil
}

// sealUnder makes the object and checks that it fits the template.
func (t *TPM) sealUnder(ctx context.Context, l *link, p parent, secret []byte) (json.RawMessage, error) {
	data := tpm2.NewTPMUSensitiveCreate(&tpm2.TPM2BSensitiveData{Buffer: secret})
	made, err := t.createUnder(ctx, l, p, tpm2.TPMSSensitiveCreate{Data: data}, true, sealTemplate())
	if err != nil {
		return nil, err
	}
	f := keyfile.NewTPMKey(keyfile.OIDSealedKey, made.OutPublic, made.OutPrivate, keyfile.WithParent(fileParent(p.ref)))
	f.EmptyAuth = true
	if _, err := newSealed(f); err != nil {
		return nil, &fault.Error{Kind: fault.KeyMismatch, Message: "the TPM made another kind of object than it was asked for", Err: err}
	}
	return json.Marshal(record{Key: string(f.Bytes()), Parent: recordOf(p.ref)})
}

// sealTemplate is the public area of every sealed secret. The data comes from
// outside, so that sensitiveDataOrigin is clear.
func sealTemplate() tpm2.TPMTPublic {
	return tpm2.TPMTPublic{
		Type: tpm2.TPMAlgKeyedHash, NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{FixedTPM: true, FixedParent: true, UserWithAuth: true, NoDA: true},
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgKeyedHash, &tpm2.TPMSKeyedHashParms{
			Scheme: tpm2.TPMTKeyedHashScheme{Scheme: tpm2.TPMAlgNull},
		}),
	}
}

// A sealed is the parsed and checked record of a sealed secret.
type sealed struct {
	file   *keyfile.TPMKey
	name   []byte
	parent parentRef
}

// parseSealed reads a result of Seal and makes all checks that need no device.
func parseSealed(device []byte) (*sealed, error) {
	r, err := parseRecord(device)
	if err != nil {
		return nil, err
	}
	if r.Handle != "" {
		return nil, malformed("a sealed secret with a handle")
	}
	f, err := parseFile([]byte(r.Key), keyfile.OIDSealedKey)
	if err != nil {
		return nil, err
	}
	s, err := newSealed(f)
	if err != nil {
		return nil, err
	}
	s.parent, err = r.Parent.ref()
	return s, err
}

// newSealed rejects an object that is not exactly as Seal makes them: one that counts
// for the lockout, for example, would cost a try each time.
func newSealed(f *keyfile.TPMKey) (*sealed, error) {
	area, err := f.Pubkey.Contents()
	if err != nil || !bytes.Equal(tpm2.Marshal(*area), f.Pubkey.Bytes()) {
		return nil, malformed("public area")
	}
	if !sameKey(sealTemplate(), *area) || !f.EmptyAuth {
		return nil, refuse("it is not a secret that was sealed here")
	}
	name, err := tpm2.ObjectName(area)
	if err != nil {
		return nil, asMalformed(err)
	}
	return &sealed{file: f, name: name.Buffer}, nil
}

// recordOf returns the record of a parent.
func recordOf(p parentRef) recordParent {
	r := recordParent{Template: p.template, Name: hex.EncodeToString(p.name)}
	if p.handle != 0 {
		r.Handle = handleText(p.handle)
	}
	return r
}

// Unseal loads a sealed object under its pinned parent, opens it and flushes it:
// seven commands.
func (t *TPM) Unseal(ctx context.Context, device json.RawMessage) ([]byte, error) {
	o, err := parseSealed(device)
	if err != nil {
		return nil, err
	}
	var secret []byte
	err = t.run(ctx, requestTimeout, func(ctx context.Context) error {
		l, err := t.sharedLink(ctx)
		if err != nil {
			return err
		}
		return t.withParent(ctx, l, o.parent, func(p parent) error {
			h, err := t.loadSealed(ctx, l, p, o)
			if err != nil {
				return err
			}
			defer t.flush(ctx, l, h)
			secret, err = t.unsealAt(ctx, l, p, tpm2.AuthHandle{Handle: h, Name: tpm2.TPM2BName{Buffer: o.name}})
			return err
		})
	})
	if err != nil {
		clear(secret)
		return nil, err
	}
	return secret, nil
}

// hintSealed is the next step for a secret that its TPM refuses.
const hintSealed = "the record is damaged or belongs to another TPM: restore it, or seal the secret again"

// loadSealed loads a sealed object. Its handle is held and the caller's to flush.
func (t *TPM) loadSealed(ctx context.Context, l *link, p parent, o *sealed) (tpm2.TPMHandle, error) {
	var h tpm2.TPMHandle
	err := t.withRoom(ctx, func() error {
		reply, err := tpm2.Load{ParentHandle: p.auth(), InPrivate: o.file.Privkey, InPublic: o.file.Pubkey}.Execute(l.on(ctx))
		err = step("TPM2_Load", l, err)
		if aboutParameter(err) && !vanished(err) {
			return &fault.Error{Kind: fault.KeyLost, Message: "the TPM no longer opens this secret", Hint: hintSealed, Err: err}
		}
		if err != nil {
			return err
		}
		h = reply.ObjectHandle
		t.hold(h)
		if !bytes.Equal(reply.Name.Buffer, o.name) {
			t.flush(ctx, l, h)
			return &fault.Error{Kind: fault.KeyMismatch, Message: "the TPM loaded another object than the record's"}
		}
		return nil
	})
	return h, err
}

// unsealAt asks for the secret in a session that only the parent's owner can
// have answered, and whose reply is encrypted.
func (t *TPM) unsealAt(ctx context.Context, l *link, p parent, item tpm2.AuthHandle) ([]byte, error) {
	s, err := t.startSession(ctx, l, sessionRequest{salt: &p, reply: true})
	if err != nil {
		return nil, err
	}
	defer t.flush(ctx, l, s.handle)
	defer s.wipe()
	item.Auth = s
	reply, err := tpm2.Unseal{ItemHandle: item}.Execute(l.on(ctx))
	if err != nil {
		return nil, step("TPM2_Unseal", l, err)
	}
	secret := reply.OutData.Buffer
	if keys.CheckSecret(secret) != nil {
		return nil, step("TPM2_Unseal", l, fmt.Errorf("%w: a secret of %d bytes", errMalformed, len(secret)))
	}
	return secret, nil
}
