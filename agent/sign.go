package agent

import (
	"bytes"
	"context"
	"fmt"

	"holdfast/agent/store"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/message"
	"holdfast/internal/policy"
)

// check parses the message of one method. It returns facts for the audit log that hold
// no secret, or the reason to reject the message.
type check func(store.Record, keys.Scheme) (facts map[string]string, err error)

// sign is the path of one signature: policy, message, prompt where the key needs one,
// audit, queue, device, verification, a check that the caller lives, audit, reply.
func (r *request) sign(ctx context.Context, op policy.Operation, name, scheme string, msg []byte, check check) (*agentwire.SignReply, error) {
	rec, e, err := r.find(op, name)
	if err != nil {
		return nil, err
	}
	s, err := r.usable(rec, scheme)
	if err == nil {
		e.detail, err = check(rec, s)
	}
	if err == nil {
		err = r.askUser(ctx, op, rec)
	}
	if err != nil {
		return nil, r.deny(e, err)
	}
	if err := r.permit(e); err != nil {
		return nil, err
	}
	signature, err := r.signUnlocked(ctx, op, rec, s, msg)
	if err == nil {
		err = r.callerAlive()
	}
	r.agent.counts.signatures.Add(1, string(rec.Purpose), rec.Material.Backend, outcomeOf(err))
	if err := r.outcome(e, err); err != nil {
		return nil, err
	}
	return &agentwire.SignReply{Signature: signature}, nil
}

// signUnlocked signs with a key that the agent's grants show as unlocked. The device may
// have locked the key since, because it or its child process was restarted: then
// signUnlocked asks a user for the PIN and tries the device once more.
func (r *request) signUnlocked(ctx context.Context, op policy.Operation, rec store.Record, s keys.Scheme, msg []byte) ([]byte, error) {
	still := func() error { return r.still(op, rec) }
	until := r.agent.grants.UnlockedUntil(idOf(rec))
	signature, err := r.signature(ctx, op, rec, s, msg, still)
	if fault.KindOf(err) != fault.PINRequired || !rec.Material.PIN {
		return signature, err
	}
	r.agent.lockedByDevice(rec, until)
	if err := r.askPIN(ctx, pinRequest{op: op, rec: rec, lasts: r.agent.Limits.UnlockDefault}); err != nil {
		return nil, err
	}
	return r.signature(ctx, op, rec, s, msg, still)
}

// usable rejects a scheme that is not the key's only scheme, and a key that is set
// aside.
func (r *request) usable(rec store.Record, scheme string) (keys.Scheme, error) {
	s, err := keys.SchemeFor(rec.Algorithm, rec.Purpose)
	if err != nil {
		return "", err
	}
	if scheme != string(s) {
		return "", &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("the key signs %s and nothing else", s)}
	}
	return s, r.sound(rec)
}

// sound rejects a key that is set aside: its device gets neither a digest nor a PIN.
func (r *request) sound(rec store.Record) error {
	if flaw := r.agent.faults.of(idOf(rec)); flaw != "" {
		return &fault.Error{Kind: fault.KeyMismatch, Message: flaw, Hint: "check the device, then reload the agent"}
	}
	return nil
}

// still asks the policy once more when the caller's turn has come: the policy may have
// changed meanwhile, and the key may have been deleted or replaced.
func (r *request) still(op policy.Operation, rec store.Record) error {
	now, ok := r.agent.Store.Get(rec.Owner.UID, rec.Name)
	if !ok || !bytes.Equal(now.Material.Public, rec.Material.Public) || !r.decide(op, rec.Name, now.Owner).Allowed {
		return denied(op, rec.Name, r.conn.peer.UID)
	}
	return nil
}

// signature hashes msg and has the device sign it in the caller's turn, if still allows
// it then. It returns a signature only if it verifies under the recorded public key,
// and sets the key aside otherwise.
func (r *request) signature(ctx context.Context, op policy.Operation, rec store.Record, s keys.Scheme, msg []byte, still func() error) ([]byte, error) {
	d, err := r.agent.device(rec.Material.Backend)
	if err != nil {
		return nil, err
	}
	public, err := keys.ParsePublic(rec.Material.Public)
	if err != nil {
		return nil, err
	}
	digest := s.Digest(msg)
	signature, err := ask(ctx, d.of(rec.Material), r.caller(), func(ctx context.Context) (signature []byte, err error) {
		if err := still(); err != nil {
			return nil, err
		}
		t := r.touch(op, rec)
		defer func() { t.done(err) }()
		return d.backend.Sign(ctx, rec.Material, s, digest)
	})
	if err != nil {
		return nil, err
	}
	if err := keys.Verify(public, s, digest, signature); err != nil {
		r.agent.setAside(idOf(rec), "the device gave a signature that does not verify under the recorded public key")
		return nil, err
	}
	return signature, nil
}

// callerAlive returns an error when the calling process has ended: policy allowed the
// answer to that process only.
func (r *request) callerAlive() error {
	if err := r.conn.peer.Alive(); err != nil {
		return &fault.Error{Kind: fault.Denied, Message: "the calling process has ended", Err: err}
	}
	return nil
}

func (r *request) signTLSClient(ctx context.Context, p *agentwire.SignTLSClientParameters) (*agentwire.SignReply, error) {
	if err := r.onBehalfOf(p.OnBehalfOf); err != nil {
		return nil, err
	}
	return r.sign(ctx, policy.SignTLSClient, p.Key, p.Scheme, p.Message, func(rec store.Record, s keys.Scheme) (map[string]string, error) {
		if err := purpose(rec, keys.TLSClient); err != nil {
			return nil, err
		}
		if p.Evidence != nil || len(rec.Servers) > 0 {
			return nil, &fault.Error{Kind: fault.Unsupported, Message: "this agent cannot verify servers yet", Hint: "leave the evidence out and use a key without bound servers"}
		}
		return checkTLS(rec, s, p.Message, message.Client)
	})
}

func (r *request) signTLSServer(ctx context.Context, p *agentwire.SignParameters) (*agentwire.SignReply, error) {
	return r.sign(ctx, policy.SignTLSServer, p.Key, p.Scheme, p.Message, func(rec store.Record, s keys.Scheme) (map[string]string, error) {
		if err := purpose(rec, keys.TLSServer); err != nil {
			return nil, err
		}
		return checkTLS(rec, s, p.Message, message.Server)
	})
}

func (r *request) signCertificateRequest(ctx context.Context, p *agentwire.SignParameters) (*agentwire.SignReply, error) {
	return r.sign(ctx, policy.SignCertificateRequest, p.Key, p.Scheme, p.Message, func(rec store.Record, _ keys.Scheme) (map[string]string, error) {
		if !rec.Purpose.TLS() {
			return nil, wrongPurpose(rec)
		}
		csr, err := message.ParseCertificateRequest(p.Message, rec.Material.Public)
		if err != nil {
			return nil, err
		}
		return map[string]string{"message": string(message.CSR), "subject": csr.Subject.String()}, nil
	})
}

// checkTLS checks a handshake message of the given side: TLS 1.3, or TLS 1.2
// where the key allows it.
func checkTLS(rec store.Record, s keys.Scheme, msg []byte, side message.Side) (map[string]string, error) {
	kind, _ := message.Classify(msg)
	if kind != message.TLS12Client && kind != message.TLS12Server {
		_, err := message.ParseTLS13(msg, side, s)
		return facts(kind), err
	}
	if !rec.TLS12 {
		return nil, &fault.Error{Kind: fault.WrongPurpose, Message: "the key does not sign TLS 1.2", Hint: "use TLS 1.3, or make a key with --tls12"}
	}
	var err error
	if side == message.Client {
		_, err = message.ParseTLS12Client(msg, rec.Material.Public, s)
	} else {
		_, err = message.ParseTLS12Server(msg, s)
	}
	return facts(kind), err
}

// facts returns the kind of a message for the audit log, nothing for an unknown kind.
func facts(k message.Kind) map[string]string {
	if k == "" {
		return nil
	}
	return map[string]string{"message": string(k)}
}

func purpose(rec store.Record, want keys.Purpose) error {
	if rec.Purpose != want {
		return wrongPurpose(rec)
	}
	return nil
}

func wrongPurpose(rec store.Record) error {
	return &fault.Error{
		Kind: fault.WrongPurpose, Message: fmt.Sprintf("the key is for %s and nothing else", rec.Purpose),
		Hint: "make a key for each purpose: `holdfast key create`",
	}
}
