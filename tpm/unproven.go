package tpm

import (
	"context"

	"holdfast/internal/fault"
)

// A key file may claim that its key has no PIN when it has one. If the key also counts
// for the dictionary-attack protection, each use then costs the machine one of its few
// tries, and signatures are frequent. Such a key is tried only when a wrong
// authorisation leaves enough tries for others, and never again after the first
// refusal. Our own keys without a PIN do not count.

// counted reports whether using the key with the empty authorisation value is a try
// that can fail and count.
func (k *key) counted() bool { return !k.pin && !k.area.ObjectAttributes.NoDA }

// freedoms lists the differences from a key that Create makes.
func (k *key) freedoms() []string {
	list := freedoms(k.area)
	if k.counted() {
		list = append(list, "it has no PIN, and yet counts for the TPM's lockout")
	}
	return list
}

// hasPIN is the error for a key whose file wrongly claims that it has no PIN.
func hasPIN(err error) error {
	return &fault.Error{Kind: fault.PINRequired, Message: "the key file claims that the key has no PIN, and the TPM reports that it has one",
		Hint: "adopt the file as it was exported", Err: err}
}

// tried handles the outcome of a try that may have counted. It does not repeat a try
// whose reply was lost.
func (t *TPM) tried(err error) error {
	switch {
	case wrongAuth(err):
		return hasPIN(err)
	case err != nil && codeOf(err) == 0:
		return t.explain(err)
	}
	return err
}

// proveEmpty proves with a discarded signature that an adopted key has no PIN.
func (t *TPM) proveEmpty(ctx context.Context, l *link, e *entry) error {
	if _, err := t.mayTry(ctx, l, e.key); err != nil {
		return err
	}
	su := e.key.suites[0]
	return t.tried(saltRefused(su, t.testSign(ctx, l, e, su, nil)))
}

// signCounted signs with a key for which counted is true, and remembers for as
// long as the process runs whether that was possible.
func (t *TPM) signCounted(ctx context.Context, l *link, e *entry, su suite, digest []byte) ([]byte, error) {
	good, known := t.proven[e.key.id]
	if known && !good {
		return nil, hasPIN(nil)
	}
	if !known {
		if _, err := t.mayTry(ctx, l, e.key); err != nil {
			return nil, err
		}
	}
	signature, err := t.signPlain(ctx, l, e, su, digest)
	if err == nil || wrongAuth(err) {
		t.proven[e.key.id] = err == nil
	}
	if good && !wrongAuth(err) {
		return signature, err
	}
	return signature, t.tried(err)
}
