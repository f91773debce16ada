package tpm

import (
	"context"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// Export returns the key as a TSS2 PRIVATE KEY file, which tpm2-openssl,
// ssh-tpm-agent and others load on the same TPM.
func (t *TPM) Export(m keys.Material) ([]byte, error) {
	k, err := parseMaterial(m)
	if err != nil {
		return nil, err
	}
	return k.file.Bytes(), nil
}

// Import takes a TSS2 PRIVATE KEY file of a loadable key whose parent is the
// owner hierarchy's standard primary or a persistent storage key, and loads it.
// The key keeps the authorisation value that it has. A foreign key without PIN
// may count for the dictionary-attack protection (tpm2-openssl's do): that takes
// allowImported, and one signature, which proves that there is no PIN. Import sends
// nothing when a wrong claim would come too near the TPM's lockout. Such a key cannot
// sign while the TPM is locked, which our own keys can.
func (t *TPM) Import(ctx context.Context, asked keys.Template, file []byte, allowImported bool) (keys.Material, error) {
	k, err := parseKeyFile(file)
	if err != nil {
		return keys.Material{}, err
	}
	if err := k.suits(asked, allowImported); err != nil {
		return keys.Material{}, err
	}
	ref, err := parentOf(k.file.Parent)
	if err != nil {
		return keys.Material{}, err
	}
	var m keys.Material
	err = t.run(ctx, requestTimeout, func(ctx context.Context) (err error) {
		m, err = t.settle(ctx, asked.Persistent, func(l *link) (*entry, error) {
			return t.adopt(ctx, l, k, ref)
		})
		if err == nil && k.counted() {
			t.proven[k.id] = true
		}
		return err
	})
	return m, err
}

// parentOf is the parent that a key file names.
func parentOf(h tpm2.TPMHandle) (parentRef, error) {
	switch {
	case h == tpm2.TPMRHOwner:
		return standardParent(), nil
	case tpm2.TPMHT(h>>24) == tpm2.TPMHTPersistent:
		return parentRef{handle: h}, nil
	}
	return parentRef{}, refuse("its parent " + handleText(h) + " is neither the owner hierarchy nor persistent")
}

// suits rejects a key of another kind than requested, or with freedoms that were not
// allowed, and narrows its suites to the purpose's.
func (k *key) suits(asked keys.Template, allowImported bool) error {
	if free := k.freedoms(); len(free) != 0 && !allowImported {
		return &fault.Error{Kind: fault.Unsupported, Message: "the key is not one that was made inside this TPM to sign: " + free[0],
			Hint: "--allow-imported takes it, and marks it as imported"}
	}
	public, err := keys.ParsePublic(k.spki)
	if err != nil {
		return err
	}
	alg, bits, err := keys.AlgorithmOf(public)
	if err != nil {
		return err
	}
	if asked.Algorithm != "" && alg != asked.Algorithm || asked.RSABits != 0 && bits != asked.RSABits {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("the file holds %s", describe([]keys.Capability{{Algorithm: alg, RSABits: bits}}))}
	}
	if len(asked.PIN) != 0 {
		return &fault.Error{Kind: fault.BadRequest, Message: "an imported key keeps the PIN that it has"}
	}
	scheme, err := keys.SchemeFor(alg, asked.Purpose)
	if err != nil {
		return err
	}
	su, err := k.suite(scheme)
	k.suites = []suite{su}
	return err
}

// adopt loads a foreign key under its parent and checks it as far as possible.
func (t *TPM) adopt(ctx context.Context, l *link, k *key, ref parentRef) (*entry, error) {
	var e *entry
	err := t.withParent(ctx, l, ref, func(p parent) (err error) {
		if e, err = t.loadUnder(ctx, l, p, k); err != nil {
			return err
		}
		k.parent = p.ref
		if k.counted() {
			err = t.proveEmpty(ctx, l, e)
		} else {
			err = t.testSalt(ctx, l, p, e, nil)
		}
		if err != nil {
			t.flush(ctx, l, e.handle)
		}
		return err
	})
	return e, err
}
