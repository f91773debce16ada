package tpm

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"

	keyfile "github.com/foxboron/go-tpm-keyfiles"
	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// persistentSRK is where provisioning puts the storage root key (TCG TPM 2.0
// Provisioning Guidance, section 7.8). It is used, never made or evicted.
const persistentSRK tpm2.TPMHandle = 0x81000001

// A parentRef identifies a key's parent: the primary of a template in the owner
// hierarchy, or the object at a persistent handle.
type parentRef struct {
	template []byte         // TPMT_PUBLIC; empty with a handle
	handle   tpm2.TPMHandle // zero with a template
	name     []byte         // nil while a new key looks for its parent
}

// standardParent is the parent of new keys: the ECC P-256 storage primary with
// an empty unique field, which the TSS2 key file format means by parent
// 0x40000001 (template H-2 of the TCG EK Credential Profile, section B.4.5).
func standardParent() parentRef {
	return parentRef{template: tpm2.Marshal(keyfile.ECCSRK_H2_Template)}
}

// A parent is a storage key that is loaded for as long as withParent lasts.
type parent struct {
	ref    parentRef // complete, with the name
	handle tpm2.TPMHandle
	public *tpm2.TPMTPublic
}

// auth authorises the parent's use: storage root keys have an empty
// authorisation value.
func (p parent) auth() tpm2.AuthHandle {
	return tpm2.AuthHandle{Handle: p.handle, Name: tpm2.TPM2BName{Buffer: p.ref.name}, Auth: tpm2.PasswordAuth(nil)}
}

// withParent makes or finds the parent on l, checks that it is the recorded
// one, lends it to use and flushes it. Where the owner hierarchy needs an
// authorisation that we do not have, the persistent storage root key serves
// new keys, and old keys when it is the same key.
func (t *TPM) withParent(ctx context.Context, l *link, ref parentRef, use func(parent) error) error {
	if ref.handle != 0 {
		p, err := readParent(ctx, l, ref)
		return t.lend(p, err, use)
	}
	p, err := t.createParent(ctx, l, ref)
	if wrongAuth(err) {
		p, err = readParent(ctx, l, parentRef{handle: persistentSRK, name: ref.name})
		return t.lend(p, ownerRefused(err), use)
	}
	if err != nil {
		return err
	}
	defer t.flush(ctx, l, p.handle)
	return t.lend(p, checkParent(&p, ref.name), use)
}

// lend calls use unless err is set.
func (t *TPM) lend(p parent, err error, use func(parent) error) error {
	if err != nil {
		return err
	}
	t.leave(keys.StateIdentityChanged)
	return use(p)
}

// ownerRefused is the error for a missing owner authorisation where the persistent
// storage root key cannot be used instead.
func ownerRefused(err error) error {
	kind := fault.KindOf(err)
	if err == nil || codeOf(err) == tpm2.TPMRCSuccess && kind != fault.IdentityChanged && kind != fault.NotFound {
		return err
	}
	return &fault.Error{Kind: fault.Unsupported, Message: "the TPM's owner hierarchy needs an authorisation, and no usable storage root key is at 0x81000001",
		Hint: hintOwner, Err: err}
}

// createParent makes the primary of ref's template.
func (t *TPM) createParent(ctx context.Context, l *link, ref parentRef) (parent, error) {
	var p parent
	err := t.asOwner(ctx, l, func(owner tpm2.AuthHandle) error {
		return t.withRoom(ctx, func() error {
			reply, err := tpm2.CreatePrimary{
				PrimaryHandle: owner,
				InPublic:      tpm2.BytesAs2B[tpm2.TPMTPublic](ref.template),
			}.Execute(l.on(ctx))
			if err != nil {
				return templateRefused(step("TPM2_CreatePrimary", l, err))
			}
			t.hold(reply.ObjectHandle)
			p = parent{ref: ref, handle: reply.ObjectHandle}
			p.public, err = reply.OutPublic.Contents()
			if err != nil {
				t.flush(ctx, l, p.handle)
			}
			return step("TPM2_CreatePrimary", l, err)
		})
	})
	return p, err
}

// templateRefused is the error for a device that does not support the parent's
// template: it is another device, or the record is damaged.
func templateRefused(err error) error {
	if !aboutParameter(err) || wrongAuth(err) {
		return err
	}
	return &fault.Error{Kind: fault.KeyLost, Message: "the TPM cannot make the key's parent", Hint: hintLost, Err: err}
}

// readParent looks up the persistent parent of ref, with a command that tries no
// authorisation.
func readParent(ctx context.Context, l *link, ref parentRef) (parent, error) {
	p := parent{ref: ref, handle: ref.handle}
	public, err := readPublic(ctx, l, ref.handle)
	if vanished(err) {
		return p, parentMissing(ref)
	}
	if err != nil {
		return p, err
	}
	p.public = public
	if err := checkParent(&p, ref.name); err != nil {
		return p, err
	}
	if !public.ObjectAttributes.NoDA {
		return p, parentCounts(ref)
	}
	return p, nil
}

// parentMissing is the error for a persistent parent whose handle is empty.
func parentMissing(ref parentRef) error {
	where := handleText(ref.handle)
	if ref.name == nil {
		return &fault.Error{Kind: fault.NotFound, Message: "this TPM has no key at " + where + ", where the key's parent should be"}
	}
	return &fault.Error{Kind: fault.IdentityChanged, Message: "the key's parent is no longer at " + where, Hint: hintIdentity}
}

// parentCounts is the error for a persistent parent whose use with the empty
// authorisation value is a try that may count for the lockout. The parent is not used:
// each key under it would cost a try whenever it is loaded.
func parentCounts(ref parentRef) error {
	return &fault.Error{Kind: fault.Unsupported, Message: "the key's parent at " + handleText(ref.handle) + " counts for the TPM's lockout",
		Hint: "storage root keys have the attribute noda: make the key under such a one"}
}

// readPublic returns the public area of the object at a handle.
func readPublic(ctx context.Context, l *link, h tpm2.TPMHandle) (*tpm2.TPMTPublic, error) {
	reply, err := tpm2.ReadPublic{ObjectHandle: h}.Execute(l.on(ctx))
	if err != nil {
		return nil, step("TPM2_ReadPublic", l, err)
	}
	public, err := reply.OutPublic.Contents()
	return public, step("TPM2_ReadPublic", l, err)
}

// hintIdentity is the next step after a clear or a swap.
const hintIdentity = "if the TPM was cleared or replaced, its keys are gone: make new ones and enrol them again"

// checkParent computes the parent's name from its public area, instead of asking the
// device for it, and compares it with the recorded name.
func checkParent(p *parent, recorded []byte) error {
	if err := checkStorage(p.public); err != nil {
		return err
	}
	name, err := tpm2.ObjectName(p.public)
	if err != nil {
		return fmt.Errorf("parent's name: %w", err)
	}
	if recorded != nil && !bytes.Equal(name.Buffer, recorded) {
		return &fault.Error{Kind: fault.IdentityChanged, Message: "this is not the TPM that made the key, or it was cleared since",
			Hint: hintIdentity, Err: fmt.Errorf("parent is %s, recorded %s", hex.EncodeToString(name.Buffer), hex.EncodeToString(recorded))}
	}
	p.ref.name = name.Buffer
	return nil
}

// checkStorage rejects a parent that is not a storage key bound to its device.
func checkStorage(public *tpm2.TPMTPublic) error {
	a := public.ObjectAttributes
	if !a.Restricted || !a.Decrypt || a.SignEncrypt || !a.FixedTPM || !a.FixedParent || !a.SensitiveDataOrigin {
		return &fault.Error{Kind: fault.Unsupported, Message: "the key's parent is not a storage key that was made inside the TPM and stays there"}
	}
	return nil
}

// asOwner lends an authorised owner hierarchy. The value goes through an HMAC
// session, so that it does not cross the bus in clear.
func (t *TPM) asOwner(ctx context.Context, l *link, use func(tpm2.AuthHandle) error) error {
	owner := tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)}
	if len(t.config.OwnerAuth) == 0 {
		return use(owner)
	}
	s, err := t.startSession(ctx, l, sessionRequest{auth: t.config.OwnerAuth})
	if err != nil {
		return err
	}
	defer t.flush(ctx, l, s.handle)
	owner.Auth = s
	return use(owner)
}
