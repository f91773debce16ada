package tpm

import (
	"context"

	keyfile "github.com/foxboron/go-tpm-keyfiles"
	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// Create makes a key under the standard storage primary, loads it and checks
// that it fits the template. An RSA key for TLS also signs once, because some devices
// use another salt length in RSASSA-PSS than TLS requires.
func (t *TPM) Create(ctx context.Context, asked keys.Template) (keys.Material, error) {
	area, err := template(asked)
	if err != nil {
		return keys.Material{}, err
	}
	if len(asked.PIN) != 0 {
		if err := keys.CheckPIN(asked.PIN); err != nil {
			return keys.Material{}, err
		}
	}
	wait := requestTimeout
	if area.Type == tpm2.TPMAlgRSA {
		wait = rsaTimeout
	}
	var m keys.Material
	err = t.run(ctx, wait, func(ctx context.Context) (err error) {
		if err := t.supports(ctx, area); err != nil {
			return err
		}
		m, err = t.settle(ctx, asked.Persistent, func(l *link) (*entry, error) {
			return t.create(ctx, l, asked, area)
		})
		return err
	})
	return m, err
}

// settle keeps the key that bring brought into the device on a link of its own,
// reserves a persistent handle for it if requested, and returns its material.
func (t *TPM) settle(ctx context.Context, persistent bool, bring func(*link) (*entry, error)) (keys.Material, error) {
	t.clock++
	l, own, err := t.linkFor(ctx, true)
	if err != nil {
		return keys.Material{}, err
	}
	e, err := bring(l)
	if err != nil {
		own.drop()
		return keys.Material{}, err
	}
	e.own = own
	if persistent {
		if e.key.persistent, err = t.reserve(ctx, l); err != nil {
			t.flush(ctx, l, e.handle)
			own.drop()
			return keys.Material{}, err
		}
	}
	m, err := e.key.material()
	if err != nil {
		return keys.Material{}, err
	}
	t.enrol(e)
	return m, nil
}

// create makes a key and loads it.
func (t *TPM) create(ctx context.Context, l *link, asked keys.Template, area tpm2.TPMTPublic) (*entry, error) {
	var e *entry
	err := t.withParent(ctx, l, standardParent(), func(p parent) error {
		k, err := t.make(ctx, l, p, asked.PIN, area)
		if err != nil {
			return err
		}
		if e, err = t.loadUnder(ctx, l, p, k); err != nil {
			return err
		}
		if err := t.testSalt(ctx, l, p, e, asked.PIN); err != nil {
			t.flush(ctx, l, e.handle)
			return err
		}
		return nil
	})
	return e, err
}

// make makes a key and checks the reply.
func (t *TPM) make(ctx context.Context, l *link, p parent, pin []byte, area tpm2.TPMTPublic) (*key, error) {
	sensitive := tpm2.TPMSSensitiveCreate{UserAuth: tpm2.TPM2BAuth{Buffer: pin}}
	made, err := t.createUnder(ctx, l, p, sensitive, len(pin) != 0, area)
	if err != nil {
		return nil, err
	}
	return madeKey(made, p.ref, area, len(pin) == 0)
}

// createUnder sends TPM2_Create, with sensitive encrypted to the parent when it
// holds a secret.
func (t *TPM) createUnder(ctx context.Context, l *link, p parent, sensitive tpm2.TPMSSensitiveCreate, secret bool, area tpm2.TPMTPublic) (*tpm2.CreateResponse, error) {
	auth := p.auth()
	if secret {
		s, err := t.startSession(ctx, l, sessionRequest{salt: &p, encrypt: true})
		if err != nil {
			return nil, err
		}
		defer t.flush(ctx, l, s.handle)
		defer s.wipe()
		auth.Auth = s
	}
	var made *tpm2.CreateResponse
	err := t.withRoom(ctx, func() (err error) {
		made, err = tpm2.Create{
			ParentHandle: auth,
			InSensitive:  tpm2.TPM2BSensitiveCreate{Sensitive: &sensitive},
			InPublic:     tpm2.New2B(area),
		}.Execute(l.on(ctx))
		return step("TPM2_Create", l, err)
	})
	return made, err
}

// madeKey checks the new key against the template.
func madeKey(made *tpm2.CreateResponse, ref parentRef, asked tpm2.TPMTPublic, emptyAuth bool) (*key, error) {
	f := keyfile.NewTPMKey(keyfile.OIDLoadableKey, made.OutPublic, made.OutPrivate, keyfile.WithParent(fileParent(ref)))
	f.EmptyAuth = emptyAuth
	k, err := newKey(f)
	if err != nil {
		return nil, err
	}
	if !sameKey(asked, *k.area) {
		return nil, &fault.Error{Kind: fault.KeyMismatch, Message: "the TPM made another kind of key than it was asked for"}
	}
	k.parent = ref
	return k, nil
}

// fileParent is a parent as TSS2 key files name it: the owner hierarchy for its
// standard primary, else the persistent handle.
func fileParent(ref parentRef) tpm2.TPMHandle {
	if ref.handle != 0 {
		return ref.handle
	}
	return tpm2.TPMRHOwner
}

// testSalt signs once with an RSASSA-PSS key and verifies with a salt as long
// as the hash, as TLS 1.3 has it (RFC 8446, section 4.2.3). The TPM chooses the
// salt's length, and old ones take the longest that fits.
func (t *TPM) testSalt(ctx context.Context, l *link, p parent, e *entry, pin []byte) error {
	su := e.key.suites[0]
	if su.alg != tpm2.TPMAlgRSAPSS || e.key.pin && len(pin) == 0 {
		return nil
	}
	var s *session
	if e.key.pin {
		var err error
		if s, err = t.bindSession(ctx, l, p, e, pin); err != nil {
			return err
		}
		defer t.flush(ctx, l, s.handle)
		defer s.wipe()
	}
	return saltRefused(su, t.testSign(ctx, l, e, su, s))
}

// saltRefused is the error for an RSASSA-PSS signature that does not verify.
func saltRefused(su suite, err error) error {
	if su.alg == tpm2.TPMAlgRSAPSS && fault.KindOf(err) == fault.KeyMismatch {
		return &fault.Error{Kind: fault.Unsupported, Message: "this TPM's RSASSA-PSS signatures do not have the salt that TLS requires",
			Hint: "use --algorithm ES256", Err: err}
	}
	return err
}
