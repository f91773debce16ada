package piv

import (
	"context"
	"fmt"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
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
	if err != nil {
		return nil, r.worker.refused(k, err)
	}
	if len(reply.Signature) == 0 {
		return nil, &fault.Error{Kind: fault.DeviceFailed, Message: "the card has signed nothing"}
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
	return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("a key of algorithm %s signs no %d bytes as %.40q", k.algorithm, len(digest), s)}
}

// signing is how long a signature may take. A wait for a touch goes on to the
// card's own end when nobody waits for the signature any more, and none is asked
// for twice.
func (p *PIV) signing(k *key) patience {
	if k.TouchPolicy != keys.PolicyNever {
		return patience{limit: p.config.limits.touch, grace: p.config.limits.finger, touch: true}
	}
	return p.reading()
}

// reading is how long it takes to learn something that can be asked for again.
func (p *PIV) reading() patience {
	return patience{limit: p.config.limits.operation, grace: p.config.limits.grace, repeat: true}
}

// proving is for requests that hold a PIN or change the card: they are made once.
func (p *PIV) proving() patience {
	return patience{limit: p.config.limits.operation, grace: p.config.limits.grace}
}

// refused turns the failure of a signature into what the caller can do about it.
func (w *worker) refused(k *key, err error) error {
	switch kind := fault.KindOf(err); {
	case kind == fault.PINRequired || kind == fault.PINBlocked: // the child has dropped the PIN, or is a new one
		w.forget(k.id)
	case k.wantsPIN() && died(err):
		return &fault.Error{Kind: fault.PINRequired, Message: "the process that held the card's PIN ended", Next: fault.Next{Do: fault.Unlock}, Err: err}
	case k.TouchPolicy != keys.PolicyNever && kind == fault.Deadline:
		return &fault.Error{Kind: fault.TouchTimeout, Message: fmt.Sprintf("nobody touched card %d in time", k.Serial), Hint: "try again, and touch the card while it blinks", Err: err}
	}
	return err
}
