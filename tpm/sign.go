package tpm

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// Sign signs digest: one command for a key that is in the device, four when it
// has to be loaded first. A key with a PIN needs an Unlock before.
func (t *TPM) Sign(ctx context.Context, m keys.Material, s keys.Scheme, digest []byte) ([]byte, error) {
	if len(digest) == 0 || s.Hash() == 0 || len(digest) != s.Hash().Size() {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("a digest of %d bytes is not one for %q", len(digest), s)}
	}
	var signature []byte
	err := t.run(ctx, requestTimeout, func(ctx context.Context) error {
		e, err := t.find(ctx, m)
		if err != nil {
			return err
		}
		su, err := e.key.suite(s)
		if err != nil {
			return err
		}
		signature, err = t.signWith(ctx, e, su, digest)
		return err
	})
	return signature, err
}

// signWith signs with a loaded key.
func (t *TPM) signWith(ctx context.Context, e *entry, su suite, digest []byte) ([]byte, error) {
	l, err := t.linkOf(ctx, e)
	if err != nil {
		return nil, err
	}
	if e.key.pin {
		return t.signUnlocked(ctx, l, e, su, digest)
	}
	if e.key.counted() {
		return t.signCounted(ctx, l, e, su, digest)
	}
	return t.signPlain(ctx, l, e, su, digest)
}

// signPlain signs with a key whose authorisation value is empty.
func (t *TPM) signPlain(ctx context.Context, l *link, e *entry, su suite, digest []byte) ([]byte, error) {
	r, err := t.sendSign(ctx, l, appendSign(l.build[:0], e.handle, nil, nil, su, digest))
	if err != nil {
		return nil, err
	}
	if err := r.checkPassword(); err != nil {
		return nil, step("TPM2_Sign", l, err)
	}
	signature, err := parseSignature(r.parameters, su)
	return signature, step("TPM2_Sign", l, err)
}

// signUnlocked signs with the session of Unlock.
func (t *TPM) signUnlocked(ctx context.Context, l *link, e *entry, su suite, digest []byte) ([]byte, error) {
	if s := t.sessionOf(e.key.id); s != nil {
		if err := t.unpark(ctx, l, s); err != nil {
			return nil, t.sessionFailed(e.key.id, err)
		}
	}
	s, command, err := t.authorise(l, e, su, digest)
	if err != nil {
		return nil, err
	}
	r, err := t.sendSign(ctx, l, command)
	if err != nil {
		return nil, t.sessionFailed(e.key.id, err)
	}
	if err := t.acceptReply(l, e.key.id, s, r); err != nil {
		return nil, err
	}
	signature, err := parseSignature(r.parameters, su)
	return signature, step("TPM2_Sign", l, err)
}

// authorise lays TPM2_Sign out under the key's live session.
func (t *TPM) authorise(l *link, e *entry, su suite, digest []byte) (*session, []byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.unlocked[e.key.id]
	if s == nil || !time.Now().Before(s.until) {
		return nil, nil, needPIN()
	}
	if err := s.NewNonceCaller(); err != nil {
		return nil, nil, err
	}
	return s, appendSign(l.build[:0], e.handle, e.key.name, s, su, digest), nil
}

// acceptReply checks a reply under s, and fails when s was locked meanwhile: without
// its key the reply cannot be authenticated.
func (t *TPM) acceptReply(l *link, id string, s *session, r signReply) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unlocked[id] != s {
		return needPIN()
	}
	err := s.acceptSign(r)
	if err != nil {
		t.retire(id)
	}
	return step("TPM2_Sign", l, err)
}

// acceptSign checks the authorisation of a reply to TPM2_Sign.
func (s *session) acceptSign(r signReply) error {
	if r.attrs != s.attrs {
		return errReplyMAC
	}
	return s.accept(replyHash(tpm2.TPMCCSign, r.parameters), r.nonce, r.attrs, r.mac)
}

// sessionFailed ends a session that can no longer be used after err, and returns the
// caller's error.
func (t *TPM) sessionFailed(id string, err error) error {
	rc := codeOf(err)
	switch {
	case sessionVanished(err), wrongAuth(err):
		t.endSession(id)
		return needPIN()
	case rc == tpm2.TPMRCSuccess: // no reply: the nonces differ
		t.endSession(id)
	}
	return err
}

// sendSign sends a TPM2_Sign that has been laid out and takes its reply apart.
func (t *TPM) sendSign(ctx context.Context, l *link, command []byte) (signReply, error) {
	var r signReply
	err := t.withRoom(ctx, func() error {
		reply, err := l.send(ctx, command)
		if err != nil {
			return step("TPM2_Sign", l, err)
		}
		if rc := replyCode(reply); rc != tpm2.TPMRCSuccess {
			return step("TPM2_Sign", l, rc)
		}
		r, err = parseSignReply(reply)
		return step("TPM2_Sign", l, err)
	})
	return r, err
}

// testSign signs a random digest and verifies the signature, with s for a key with a
// PIN.
func (t *TPM) testSign(ctx context.Context, l *link, e *entry, su suite, s *session) error {
	digest := make([]byte, su.scheme.Hash().Size())
	if _, err := rand.Read(digest); err != nil {
		return err
	}
	if s != nil {
		if err := s.NewNonceCaller(); err != nil {
			return err
		}
	}
	r, err := t.sendSign(ctx, l, appendSign(l.build[:0], e.handle, e.key.name, s, su, digest))
	if err != nil {
		return err
	}
	if s != nil {
		if err := s.acceptSign(r); err != nil {
			return step("TPM2_Sign", l, err)
		}
	}
	signature, err := parseSignature(r.parameters, su)
	if err != nil {
		return step("TPM2_Sign", l, err)
	}
	public, err := keys.ParsePublic(e.key.spki)
	if err != nil {
		return err
	}
	return keys.Verify(public, su.scheme, digest, signature)
}
