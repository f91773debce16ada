package agent

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"time"

	"holdfast/agent/store"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
)

// seal has a device seal a secret, and stores the result when the device has given the
// secret back once. Each sealed secret belongs to one user; the machine has none. Names
// of sealed secrets and of keys are independent.
func (r *request) seal(ctx context.Context, p *agentwire.SealParameters) (*agentwire.Empty, error) {
	defer clear(p.Secret)
	if err := keys.CheckName(p.Name); err != nil {
		return nil, err
	}
	if err := keys.CheckSecret(p.Secret); err != nil {
		return nil, err
	}
	e, err := r.allowSealed(policy.Seal, p.Name)
	if err != nil {
		return nil, err
	}
	if r.sealedBefore(p) {
		return &agentwire.Empty{}, nil
	}
	d, s, err := r.sealingDevice(p)
	if err != nil {
		return nil, r.deny(e, err)
	}
	if err := r.permit(e); err != nil {
		return nil, err
	}
	err = r.sealOn(ctx, d, s, p)
	if err != nil && r.sealedBefore(p) {
		err = nil // the first call of this request finished after this one began
	}
	return &agentwire.Empty{}, r.outcome(e, err)
}

// allowSealed asks the policy about a sealed secret of the caller, and records a denial.
// It does not depend on whether the secret exists.
func (r *request) allowSealed(op policy.Operation, name string) (entry, error) {
	d := r.decide(op, name, r.self())
	e := entry{op: op, key: name, owner: r.self()}
	if !d.Allowed {
		return e, r.deny(e, deniedSealed(op, name, r.conn.peer.UID))
	}
	e.rule = d.Rule
	return e, nil
}

// deniedSealed returns the error for a sealed secret that is missing, and for one that
// policy forbids.
func deniedSealed(op policy.Operation, name string, uid uint32) error {
	return &fault.Error{
		Kind: fault.Denied, Message: fmt.Sprintf("there is no sealed secret %q that uid %d may use for %s", name, uid, op),
		Hint: "`holdfast policy check` names the rule that decides",
	}
}

// sealedBefore reports whether p repeats a request that was carried out already.
func (r *request) sealedBefore(p *agentwire.SealParameters) bool {
	old, ok := r.agent.Store.GetSealed(r.conn.peer.UID, p.Name)
	return ok && p.RequestID != "" && p.RequestID == old.RequestID
}

// sealingDevice returns the device to seal with. It rejects what cannot work before any
// device is used.
func (r *request) sealingDevice(p *agentwire.SealParameters) (*device, keys.Sealer, error) {
	uid := r.conn.peer.UID
	if _, taken := r.agent.Store.GetSealed(uid, p.Name); taken && !p.Replace {
		return nil, nil, &fault.Error{
			Kind: fault.BadRequest, Message: fmt.Sprintf("sealed secret %q already exists", p.Name),
			Hint: "choose another name, or replace it",
		}
	}
	d, s, err := r.agent.sealer(p.Backend)
	if err == nil && r.agent.System && uid != machine {
		err = r.agent.rates.createdKeys.check(uid, 1, "new keys and sealed secrets")
	}
	return d, s, err
}

// sealer returns the named backend's device, and the backend as a [keys.Sealer].
func (a *Agent) sealer(backend string) (*device, keys.Sealer, error) {
	d, err := a.device(backend)
	if err != nil {
		return nil, nil, err
	}
	s, ok := d.backend.(keys.Sealer)
	if !ok {
		return nil, nil, &fault.Error{Kind: fault.Unsupported, Message: "backend " + d.backend.Name() + " cannot seal", Hint: "choose a TPM: --backend tpm"}
	}
	return d, s, nil
}

// sealOn seals p's secret on d, opens it once, and stores it.
func (r *request) sealOn(ctx context.Context, d *device, s keys.Sealer, p *agentwire.SealParameters) error {
	secret := bytes.Clone(p.Secret) // the work may go on after its caller has left and wiped the secret
	sealed, err := ask(ctx, d.whole(), r.caller(), func(ctx context.Context) (json.RawMessage, error) {
		defer clear(secret)
		if !r.decide(policy.Seal, p.Name, r.self()).Allowed { // the policy may have changed
			return nil, deniedSealed(policy.Seal, p.Name, r.conn.peer.UID)
		}
		return sealAndOpen(ctx, s, secret)
	})
	if err == nil {
		err = r.callerAlive()
	}
	if err != nil {
		return err
	}
	now := d.look(ctx, statusTimeout)
	return storeError(r.agent.Store.PutSealed(store.Sealed{
		Name: p.Name, Owner: r.self(), Created: time.Now().UTC().Truncate(time.Second), RequestID: p.RequestID,
		Made:    store.Made{Device: now.Device, Maker: now.Maker, Software: now.Software},
		Backend: d.backend.Name(), Device: sealed,
	}, p.Replace))
}

// sealAndOpen seals secret and has the device give it back once: the user may delete
// the secret afterwards.
func sealAndOpen(ctx context.Context, s keys.Sealer, secret []byte) (json.RawMessage, error) {
	sealed, err := s.Seal(ctx, secret)
	if err != nil {
		return nil, err
	}
	back, err := s.Unseal(ctx, sealed)
	defer clear(back)
	if err == nil && subtle.ConstantTimeCompare(back, secret) != 1 {
		err = &fault.Error{Kind: fault.KeyMismatch, Message: "the device does not give back what it sealed"}
	}
	return sealed, err
}

// unseal follows the path of a signature: policy, audit, queue, device, a check that the
// caller lives, audit, reply.
func (r *request) unseal(ctx context.Context, p *agentwire.NameParameters) (*agentwire.UnsealReply, error) {
	rec, e, err := r.findSealed(policy.Unseal, p.Name)
	if err != nil {
		return nil, err
	}
	d, s, err := r.agent.sealer(rec.Backend)
	if err != nil {
		return nil, r.deny(e, err)
	}
	if err := r.permit(e); err != nil {
		return nil, err
	}
	secret, err := ask(ctx, d.whole(), r.caller(), func(ctx context.Context) ([]byte, error) {
		if err := r.stillSealed(rec); err != nil {
			return nil, err
		}
		return s.Unseal(ctx, rec.Device)
	})
	if err == nil {
		err = r.callerAlive()
	}
	if err := r.outcome(e, err); err != nil {
		clear(secret)
		return nil, err
	}
	return &agentwire.UnsealReply{Secret: secret}, nil
}

// findSealed resolves the name of a sealed secret of the caller and asks the policy. A
// secret that is missing and one that is forbidden give the same answer and the same
// record.
func (r *request) findSealed(op policy.Operation, name string) (store.Sealed, entry, error) {
	e := entry{op: op, key: name, owner: r.self()}
	if err := keys.CheckName(name); err != nil {
		return store.Sealed{}, e, err
	}
	rec, ok := r.agent.Store.GetSealed(r.conn.peer.UID, name)
	d := r.decide(op, name, r.keeper(op, rec))
	if !ok || !d.Allowed {
		return store.Sealed{}, e, r.deny(e, deniedSealed(op, name, r.conn.peer.UID))
	}
	e.rule = d.Rule
	return rec, e, nil
}

// keeper returns the owner of a sealed secret for the policy. To open the secret, that
// is the user who sealed it: another user may have got the uid since. The present user of
// the uid may delete the secret, and may replace it.
func (r *request) keeper(op policy.Operation, rec store.Sealed) store.Owner {
	if op == policy.Unseal && rec.Generation != 0 {
		return rec.Owner
	}
	return r.self()
}

// stillSealed asks the policy once more when the caller's turn has come.
func (r *request) stillSealed(rec store.Sealed) error {
	now, ok := r.agent.Store.GetSealed(rec.Owner.UID, rec.Name)
	if !ok || now.Generation != rec.Generation || !r.decide(policy.Unseal, rec.Name, r.keeper(policy.Unseal, now)).Allowed {
		return deniedSealed(policy.Unseal, rec.Name, r.conn.peer.UID)
	}
	return nil
}

// deleteSealed deletes a sealed secret. No device holds anything of it.
func (r *request) deleteSealed(_ context.Context, p *agentwire.NameParameters) (*agentwire.Empty, error) {
	if err := r.agent.rates.auditOnlyRequests.check(r.conn.peer.UID, 1, "deletions"); err != nil {
		return nil, err
	}
	rec, e, err := r.findSealed(policy.Seal, p.Name)
	if err != nil {
		return nil, err
	}
	e.detail = map[string]string{"what": "delete"}
	if err := r.permit(e); err != nil {
		return nil, err
	}
	err = storeError(r.agent.Store.DeleteSealed(rec.Owner.UID, rec.Name))
	return &agentwire.Empty{}, r.outcome(e, err)
}

// wipe clears the secret in a reply that was sent.
func wipe(reply any) {
	if u, ok := reply.(*agentwire.UnsealReply); ok {
		clear(u.Secret)
	}
}
