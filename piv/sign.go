package piv

import (
	"context"
	"fmt"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
)

// Sign signs digest with one command to the card, and one more where the key's PIN
// policy requires the PIN. For a locked key it sends nothing to the card.
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
	if err != nil {
		return nil, r.worker.refused(k, err)
	}
	if len(reply.Signature) == 0 {
		return nil, &fault.Error{Kind: fault.DeviceFailed, Message: "the card returned no signature"}
	}
	return reply.Signature, nil
}

// fits rejects schemes and digests that the key does not sign.
func (k *key) fits(s keys.Scheme, digest []byte) error {
	for _, purpose := range keys.Purposes() {
		if scheme, err := keys.SchemeFor(k.algorithm, purpose); err == nil && scheme == s && len(digest) == s.Hash().Size() {
			return nil
		}
	}
	return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("a key of algorithm %s signs no %d bytes as %.40q", k.algorithm, len(digest), s)}
}

// signing returns the options of a signature. A wait for a touch lasts until the
// card's own timeout, also when the caller has left, and a touch is never asked for
// twice.
func (p *PIV) signing(k *key) callOptions {
	if k.TouchPolicy != keys.PolicyNever {
		return callOptions{limit: p.config.limits.touch, grace: p.config.limits.finger, touch: true}
	}
	return p.reading()
}

// reading returns the options of a request that may be repeated.
func (p *PIV) reading() callOptions {
	return callOptions{limit: p.config.limits.operation, grace: p.config.limits.grace, repeat: true}
}

// proving returns the options of a request that holds a PIN or changes the card,
// which is sent once.
func (p *PIV) proving() callOptions {
	return callOptions{limit: p.config.limits.operation, grace: p.config.limits.grace}
}

// refused translates the failure of a signature into the caller's error.
func (w *worker) refused(k *key, err error) error {
	switch kind := fault.KindOf(err); {
	case kind == fault.PINRequired || kind == fault.PINBlocked: // the child has dropped the PIN, or is a new one
		w.forget(k.id)
	case k.wantsPIN() && died(err):
		return &fault.Error{Kind: fault.PINRequired, Message: "the process that held the card's PIN ended", Next: fault.Next{Do: fault.Unlock}, Err: err}
	case k.TouchPolicy != keys.PolicyNever && kind == fault.Deadline:
		return &fault.Error{Kind: fault.TouchTimeout, Message: fmt.Sprintf("card %d was not touched in time", k.Serial), Hint: "try again, and touch the card while it blinks", Err: err}
	}
	return err
}
