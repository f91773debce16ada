package agent

import (
	"context"
	"fmt"
	"time"

	"holdfast/agent/store"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
)

// createTimeout bounds the creation of a key: an RSA key takes some TPMs minutes.
const createTimeout = 5 * time.Minute

func (r *request) createKey(ctx context.Context, p *agentwire.CreateKeyParameters) (*agentwire.KeyReply, error) {
	defer clear(p.PIN)
	if p.OnCard != nil {
		defer clear(p.OnCard.ManagementKey)
	}
	t, err := template(p)
	if err == nil {
		err = r.agent.placed(p, &t)
	}
	if err != nil {
		return nil, err
	}
	rec, err := r.newRecord(p, t)
	if err != nil {
		return nil, err
	}
	return r.add(ctx, policy.Create, rec, t, p.Backend, func(ctx context.Context, b keys.Backend, t keys.Template) (keys.Material, error) {
		return b.Create(ctx, t)
	})
}

// A maker creates or adopts a key of template t on b.
type maker func(ctx context.Context, b keys.Backend, t keys.Template) (keys.Material, error)

func (r *request) adoptKey(ctx context.Context, p *agentwire.AdoptKeyParameters) (*agentwire.KeyReply, error) {
	defer clear(p.PIN)
	like := &agentwire.CreateKeyParameters{
		Name: p.Name, Purpose: p.Purpose, Persistent: p.Persistent, TLS12: p.TLS12, Confirm: p.Confirm, RequestID: p.RequestID,
	}
	t, err := template(like)
	if err != nil {
		return nil, err
	}
	t.Algorithm, t.RSABits = "", 0 // the file says
	if err := r.agent.adopted(p, &t); err != nil {
		return nil, err
	}
	rec, err := r.newRecord(like, t)
	if err != nil {
		return nil, err
	}
	return r.add(ctx, policy.Adopt, rec, t, p.Backend, func(ctx context.Context, b keys.Backend, t keys.Template) (keys.Material, error) {
		if !p.AllowImported {
			return b.Import(ctx, t, []byte(p.File), false)
		}
		return r.importForeign(ctx, b, t, []byte(p.File))
	})
}

// importForeign imports a key that another program made. A file can claim that its
// key has no PIN, and the device counts the attempt to use it without one as a wrong
// PIN. The agent therefore spends a PIN try on the import, and returns the try unless
// the device asked for a PIN or did not answer.
func (r *request) importForeign(ctx context.Context, b keys.Backend, t keys.Template, file []byte) (keys.Material, error) {
	if _, ok := b.(keys.CardHolder); ok { // a card knows the key without a try
		return b.Import(ctx, t, file, true)
	}
	records, uid := r.agent.Store, r.conn.peer.UID
	if err := records.SpendPINTry(uid, file); err != nil {
		return keys.Material{}, err
	}
	m, err := b.Import(ctx, t, file, true)
	if fault.KindOf(err) == fault.PINRequired || fault.KindOf(err) == fault.Deadline {
		return m, err
	}
	if back := records.ReturnPINTry(uid, file); back != nil {
		r.agent.Log.Error("PIN try", "error", back)
	}
	return m, err
}

// template checks the parameters of a new key before any device is used.
func template(p *agentwire.CreateKeyParameters) (t keys.Template, err error) {
	if err = keys.CheckName(p.Name); err != nil {
		return t, err
	}
	if t.Purpose, err = keys.ParsePurpose(p.Purpose); err != nil {
		return t, err
	}
	if !t.Purpose.TLS() {
		return t, &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("this agent does not sign for purpose %s yet", t.Purpose), Hint: "make a key for tls-client or tls-server"}
	}
	t.Algorithm = keys.ES256
	if p.Algorithm != "" {
		if t.Algorithm, err = keys.ParseAlgorithm(p.Algorithm); err != nil {
			return t, err
		}
	}
	if p.RSABits != 0 && t.Algorithm != keys.RS256 {
		return t, &fault.Error{Kind: fault.BadRequest, Message: "rsaBits is for algorithm RS256 only"}
	}
	t.RSABits, t.Persistent = p.RSABits, p.Persistent
	return t, nil
}

func (r *request) newRecord(p *agentwire.CreateKeyParameters, t keys.Template) (store.Record, error) {
	confirm, err := confirmOf(p.Confirm)
	return store.Record{
		Name: p.Name, Owner: r.self(), Purpose: t.Purpose, Persistent: t.Persistent, TLS12: p.TLS12, Confirm: confirm,
		Created: time.Now().UTC().Truncate(time.Second), RequestID: p.RequestID,
	}, err
}

// add makes a key and its record. No caller sees the public key before the record is
// on the disk and the key has signed once.
func (r *request) add(ctx context.Context, op policy.Operation, rec store.Record, t keys.Template, backend string, do maker) (*agentwire.KeyReply, error) {
	caller := ctx // ends when the caller leaves; the work continues
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
	defer cancel()
	e, err := r.allow(op, rec.Name, rec.Owner)
	if err != nil {
		return nil, err
	}
	if old, ok := r.agent.Store.Get(rec.Owner.UID, rec.Name); ok {
		return r.again(e, old, rec)
	}
	e.purpose = rec.Purpose
	d, err := r.agent.device(backend)
	release := func() {}
	if err == nil {
		release, err = r.quota(t)
	}
	if err != nil {
		return nil, r.deny(e, err)
	}
	defer release()
	if err := r.permit(e); err != nil {
		return nil, err
	}
	if _, ok := d.backend.(keys.CardHolder); ok {
		err = r.addOnCard(ctx, caller, d, job{op, &rec, t, do})
	} else {
		err = r.addOn(ctx, d.whole(), job{op, &rec, t, do})
	}
	if old, ok := r.agent.Store.Get(rec.Owner.UID, rec.Name); err != nil && ok && repeats(old, rec) {
		rec, err = old, nil // the first call of this request finished after this one began
	}
	if err := r.outcome(e, err); err != nil {
		return nil, err
	}
	r.agent.publishKey("key", idOf(rec))
	return &agentwire.KeyReply{Key: r.agent.wireKey(rec)}, nil
}

// again answers a repeated request with the key that the first one made.
func (r *request) again(e entry, old, asked store.Record) (*agentwire.KeyReply, error) {
	if repeats(old, asked) {
		return &agentwire.KeyReply{Key: r.agent.wireKey(old)}, nil
	}
	return nil, r.deny(e, &fault.Error{
		Kind: fault.BadRequest, Message: fmt.Sprintf("key %q already exists", old.Name),
		Hint: "choose another name; `holdfast key show " + old.Name + "` shows the key that has this one",
	})
}

// repeats reports whether asked is the request that made old, sent again.
func repeats(old, asked store.Record) bool {
	return asked.RequestID != "" && asked.RequestID == old.RequestID && asked.Purpose == old.Purpose
}

// How many keys one user may have on a machine's agent. All users share the few
// persistent handles of a TPM.
const (
	maxKeys       = 64
	maxPersistent = 2
)

// quota counts a key that is made from now on until release is called. It rejects a key
// beyond the share of one user of a machine's agent. A user's own agent has no other
// users, and root has no quota.
func (r *request) quota(t keys.Template) (release func(), err error) {
	uid := r.conn.peer.UID
	if !r.agent.System || uid == machine {
		return func() {}, nil
	}
	cost := 1
	if t.Algorithm == keys.RS256 {
		cost = rsaKeyCost
	}
	release, ok := r.agent.claims.share(uid, t.Persistent, r.agent.Store.List)
	if !ok {
		return nil, &fault.Error{
			Kind: fault.Denied, Message: fmt.Sprintf("a user of this machine has at most %d keys, %d of them persistent", maxKeys, maxPersistent),
			Hint: "delete one that is not needed: `holdfast key list`, `holdfast key delete NAME`",
		}
	}
	if err := r.agent.rates.createdKeys.check(uid, cost, "new keys"); err != nil {
		release()
		return nil, err
	}
	return release, nil
}
