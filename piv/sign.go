package piv

import (
	"context"
	"errors"
	"fmt"

	"holdfast/agent/keys"
	"holdfast/piv/wire"
)

// Sign signs digest with one command to the card, and one more where the key's
// PIN policy wants it. A locked key does not reach the card.
func (p *PIV) Sign(ctx context.Context, m keys.Material, s keys.Scheme, digest []byte) ([]byte, error) {
	k, err := parse(m)
	if err != nil {
		return nil, err
	}
	if err := k.fits(s, digest); err != nil {
		return nil, err
	}
	r, err := p.scanner.find(ctx, k.Serial)
	if err != nil {
		return nil, err
	}
	if k.wantsPIN() && !r.worker.usable(k.id) {
		return nil, needPIN()
	}
	request := wire.Request{
		Op: wire.Sign, Slot: k.Slot, Public: k.public, Scheme: s, Digest: digest, PINPolicy: k.PINPolicy, TouchPolicy: k.TouchPolicy,
	}
	reply, _, err := r.worker.ask(ctx, k.Serial, request, p.signing(k))
	if err != nil && p.again(ctx, r, k, err) {
		reply, _, err = r.worker.ask(ctx, k.Serial, request, p.signing(k))
	}
	if err != nil {
		return nil, r.worker.refused(k, err)
	}
	if len(reply.Signature) == 0 {
		return nil, &keys.Error{Kind: keys.DeviceFailed, Message: "the card has signed nothing"}
	}
	return reply.Signature, nil
}

// fits refuses what the key does not sign.
func (k *key) fits(s keys.Scheme, digest []byte) error {
	for _, purpose := range keys.Purposes() {
		if scheme, err := keys.SchemeFor(k.algorithm, purpose); err == nil && scheme == s && len(digest) == s.Hash().Size() {
			return nil
		}
	}
	return &keys.Error{Kind: keys.BadRequest, Message: fmt.Sprintf("a key of algorithm %s signs no %d bytes as %.40q", k.algorithm, len(digest), s)}
}

// signing is how long a signature may take. The wait for a touch is ended at
// once when nobody waits for the signature.
func (p *PIV) signing(k *key) patience {
	if k.TouchPolicy != keys.PolicyNever {
		return patience{limit: p.config.limits.touch}
	}
	return p.brief()
}

// brief is how long everything takes that waits for nobody.
func (p *PIV) brief() patience {
	return patience{limit: p.config.limits.operation, grace: p.config.limits.grace}
}

// again reports whether to ask once more: another child may do better than one
// that crashed. It is no use when the PIN went with it, and is not tried where it
// would ask for a second touch.
func (p *PIV) again(ctx context.Context, r card, k *key, err error) bool {
	died := errors.Is(err, errGone) || errors.Is(err, errNonsense)
	return died && ctx.Err() == nil && k.TouchPolicy == keys.PolicyNever && (!k.wantsPIN() || r.worker.usable(k.id))
}

// refused turns the failure of a signature into what the caller can do about it:
// a key whose PIN is gone, because the card or the child says so, wants it again.
func (w *worker) refused(k *key, err error) error {
	kind := keys.KindOf(err)
	if kind == keys.PINRequired || kind == keys.PINBlocked {
		w.forget(k.id)
		return err
	}
	if k.wantsPIN() && (errors.Is(err, errGone) || errors.Is(err, errNonsense)) {
		return &keys.Error{Kind: keys.PINRequired, Message: "the process that held the card's PIN ended", Hint: hintUnlock, Err: err}
	}
	return err
}
