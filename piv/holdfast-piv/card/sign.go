package card

import (
	"crypto"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/holdfast-piv/vault"
	"holdfast/piv/wire"
)

// sign signs a digest. It proves the PIN by the key's policy and without piv-go, which
// takes any error of the card for a missing PIN.
func (s *Session) sign(r *wire.Request, reply *wire.Reply) error {
	slot, err := slotOf(r.Slot)
	if err != nil {
		return err
	}
	public, err := signable(r)
	if err != nil {
		return err
	}
	if err := s.prove(r.Slot, r.Public); err != nil {
		return err
	}
	if err := s.present(r); err != nil {
		return err
	}
	private, err := s.yk.PrivateKey(slot, public, piv.KeyAuth{PINPolicy: piv.PINPolicyNever})
	if err != nil {
		return err
	}
	began := time.Now()
	reply.Signature, err = private.(crypto.Signer).Sign(rand.Reader, r.Digest, r.Scheme.SignerOpts())
	if status, ok := statusOf(err); ok {
		return s.unsigned(r, status, time.Since(began))
	}
	return err
}

// signable returns the key of a request whose scheme fits the key and whose digest
// fits the scheme.
func signable(r *wire.Request) (crypto.PublicKey, error) {
	public, err := keys.ParsePublic(r.Public)
	if err != nil {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: err.Error()}
	}
	algorithm, _, err := keys.AlgorithmOf(public)
	if err != nil {
		return nil, err
	}
	for _, purpose := range keys.Purposes() {
		scheme, err := keys.SchemeFor(algorithm, purpose)
		if err == nil && scheme == r.Scheme && len(r.Digest) == scheme.Hash().Size() {
			return public, nil
		}
	}
	return nil, &fault.Error{Kind: fault.BadRequest,
		Message: fmt.Sprintf("%d bytes for scheme %.40q do not fit a key of algorithm %s", len(r.Digest), r.Scheme, algorithm)}
}

// present proves the PIN that is kept for the key when its policy requires that and
// the card has not verified it yet. It fails for a locked key even when the card would
// sign, because the PIN was given for another key.
func (s *Session) present(r *wire.Request) error {
	switch r.PINPolicy {
	case keys.PolicyNever:
		return nil
	case keys.PolicyOnce, keys.PolicyAlways:
	default:
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("PIN policy %.20q is not known", r.PINPolicy)}
	}
	pin := s.vault.Get(vault.KeyOf(r.Slot, r.Public))
	defer clear(pin)
	if pin == nil {
		return &fault.Error{Kind: fault.PINRequired, Message: fmt.Sprintf("the key in slot %s of card %d needs the card's PIN", r.Slot, s.serial), Next: fault.Next{Do: fault.Unlock}}
	}
	if r.PINPolicy == keys.PolicyAlways {
		s.verified = false // the card asks for it again
	}
	return s.reopen(pin)
}

// briefly is how soon a card reports a missing PIN; it waits 15 s for a touch.
const briefly = 5 * time.Second

// unsigned is the fault of a signature that the card refused. The PIN was proved, so
// the missing condition is a touch. Cards of other makers report a touch that did not come
// with other status words, as late.
func (s *Session) unsigned(r *wire.Request, status uint16, waited time.Duration) error {
	touch := r.TouchPolicy == keys.PolicyAlways || r.TouchPolicy == keys.PolicyCached
	switch {
	case touch && waited > briefly, status == statusSecurity && (touch || waited > briefly):
		return &fault.Error{Kind: fault.TouchTimeout, Message: fmt.Sprintf("card %d was not touched", s.serial), Hint: "try again, and touch the card while it blinks"}
	case status == statusSecurity:
		s.verified = false
		return &fault.Error{Kind: fault.PINRequired, Message: fmt.Sprintf("card %d needs its PIN for slot %s", s.serial, r.Slot), Next: fault.Next{Do: fault.Unlock}}
	case status == statusNoReference || status == statusNotFound:
		delete(s.proven, r.Slot)
		return &fault.Error{Kind: fault.KeyLost, Message: fmt.Sprintf("there is no key in slot %s of card %d", r.Slot, s.serial)}
	}
	return answered(status)
}
