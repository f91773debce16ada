package agent

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"

	"holdfast/agent/store"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
	"holdfast/internal/varlink"
)

// maxChain is how many certificates a chain may have.
const maxChain = 10

// listKeys returns only the leaf of each chain, so that all keys that a user can have
// fit into one reply.
func (r *request) listKeys(_ context.Context, p *agentwire.ListKeysParameters) (*agentwire.ListKeysReply, error) {
	reply := &agentwire.ListKeysReply{Keys: []agentwire.Key{}}
	size := 0
	for _, rec := range r.agent.Store.List() {
		if !r.shows(rec, p.All) {
			continue
		}
		rec.Chain = rec.Chain[:min(len(rec.Chain), 1)]
		k := r.agent.wireKey(rec)
		reply.Keys = append(reply.Keys, k)
		if size += wireSize(k); size > varlink.MaxMessage {
			return nil, &fault.Error{Kind: fault.Unsupported, Message: "there are more keys than fit into one reply", Hint: "`holdfast key show NAME` shows one of them"}
		}
	}
	return reply, nil
}

// wireSize returns an upper bound of the size of k in a reply, in bytes.
func wireSize(k agentwire.Key) int {
	size := 1 << 10
	for _, b := range append([][]byte{k.PublicKey}, k.Chain...) {
		size += base64.StdEncoding.EncodedLen(len(b))
	}
	for _, s := range k.Servers {
		size += 2 * (len(s.Address) + len(s.CA))
	}
	return size
}

// shows reports whether a listing for the caller has rec. A listing has the caller's
// and the machine's keys that policy lets the caller list; with all, every key that
// policy lets the caller list, and for an administrator on the admin socket every key.
func (r *request) shows(rec store.Record, all bool) bool {
	uid := rec.Owner.UID
	if all && r.conn.admin && r.privileged() {
		return true
	}
	return (all || uid == r.conn.peer.UID || uid == machine) && r.decide(policy.List, rec.Name, rec.Owner).Allowed
}

func (r *request) getKey(_ context.Context, p *agentwire.NameParameters) (*agentwire.KeyReply, error) {
	rec, _, err := r.find(policy.List, p.Name)
	if err != nil {
		return nil, err
	}
	return &agentwire.KeyReply{Key: r.agent.wireKey(rec)}, nil
}

func (r *request) exportKey(_ context.Context, p *agentwire.NameParameters) (*agentwire.ExportKeyReply, error) {
	if err := r.agent.rates.auditOnlyRequests.check(r.conn.peer.UID, 1, "exports and certificates"); err != nil {
		return nil, err
	}
	rec, d, e, err := r.permitted(policy.Export, p.Name)
	if err != nil {
		return nil, err
	}
	file, err := d.backend.Export(rec.Material)
	if err := r.outcome(e, err); err != nil {
		return nil, err
	}
	return &agentwire.ExportKeyReply{File: string(file)}, nil
}

// permitted finds a key and its device, and records that op on it is allowed.
func (r *request) permitted(op policy.Operation, name string) (store.Record, *device, entry, error) {
	rec, e, err := r.find(op, name)
	if err != nil {
		return rec, nil, e, err
	}
	d, err := r.agent.device(rec.Material.Backend)
	if err == nil {
		err = r.permit(e)
	}
	return rec, d, e, err
}

// deleteKey removes the device's part of a key before the record. A record without the
// device's part still tells what the key was; a device's part without a record takes
// up space for ever.
func (r *request) deleteKey(ctx context.Context, p *agentwire.NameParameters) (*agentwire.Empty, error) {
	rec, d, e, err := r.permitted(policy.Delete, p.Name)
	if err != nil {
		return nil, err
	}
	err = d.of(rec.Material).do(ctx, r.caller(), func(ctx context.Context) error { return d.backend.Delete(ctx, rec.Material) })
	if err == nil {
		err = storeError(r.agent.Store.Delete(rec.Owner.UID, rec.Name))
	}
	if err == nil {
		r.agent.forgetKey(rec)
	}
	return &agentwire.Empty{}, r.outcome(e, err)
}

func (a *Agent) forgetKey(rec store.Record) {
	id := idOf(rec)
	a.faults.flaws.Delete(id)
	a.grants.Lock(id)
	a.publishKey("key", id)
}

func (r *request) bindKey(_ context.Context, p *agentwire.BindKeyParameters) (*agentwire.KeyReply, error) {
	_, e, err := r.find(policy.Bind, p.Name)
	if err != nil {
		return nil, err
	}
	return nil, r.deny(e, &fault.Error{
		Kind: fault.Unsupported, Message: "this agent cannot verify servers yet, so it could not enforce a binding",
		Hint: "limit who may use the key by policy",
	})
}

func (r *request) installCertificate(ctx context.Context, p *agentwire.InstallCertificateParameters) (*agentwire.KeyReply, error) {
	defer clearAll(p.PIN, p.ManagementKey)
	if err := r.agent.rates.auditOnlyRequests.check(r.conn.peer.UID, 1, "exports and certificates"); err != nil {
		return nil, err
	}
	rec, e, err := r.find(policy.InstallCertificate, p.Name)
	if err != nil {
		return nil, err
	}
	if err := checkChain(p.Chain, rec.Material.Public); err != nil {
		return nil, r.deny(e, err)
	}
	if err := r.permit(e); err != nil {
		return nil, err
	}
	if err = r.storeInSlot(ctx, rec, p); err == nil {
		rec.Chain = p.Chain
		err = storeError(r.agent.Store.Replace(rec))
	}
	if err := r.outcome(e, err); err != nil {
		return nil, err
	}
	rec, _ = r.agent.Store.Get(rec.Owner.UID, rec.Name)
	r.agent.publishKey("key", idOf(rec))
	return &agentwire.KeyReply{Key: r.agent.wireKey(rec)}, nil
}

// checkChain rejects a chain whose leaf is for another key, or in which a certificate
// is not signed by the next.
func checkChain(chain [][]byte, public []byte) error {
	if len(chain) == 0 || len(chain) > maxChain {
		return badChain(fmt.Sprintf("a chain has 1 to %d certificates", maxChain))
	}
	var below *x509.Certificate
	for i, der := range chain {
		c, err := x509.ParseCertificate(der)
		switch {
		case err != nil:
			return badChain(fmt.Sprintf("certificate %d of the chain does not parse", i+1))
		case i == 0 && !bytes.Equal(c.RawSubjectPublicKeyInfo, public):
			return badChain("the first certificate is for another key")
		case tooLarge(c.PublicKey):
			return badChain(fmt.Sprintf("certificate %d of the chain has a key of more than %d bits", i+1, maxRSABits))
		case below != nil && below.CheckSignatureFrom(c) != nil:
			return badChain(fmt.Sprintf("certificate %d of the chain is not signed by certificate %d", i, i+1))
		}
		below = c
	}
	return nil
}

// maxRSABits bounds the keys of issuers: checking a signature takes time that
// grows with the square of their length.
const maxRSABits = 8192

func tooLarge(public any) bool {
	key, ok := public.(*rsa.PublicKey)
	return ok && key.N.BitLen() > maxRSABits
}

func badChain(fact string) error {
	return &fault.Error{Kind: fault.BadRequest, Message: fact, Hint: "give the leaf first, then each issuer, in PEM"}
}

// wireKey returns rec as callers see it.
func (a *Agent) wireKey(rec store.Record) agentwire.Key {
	scheme, _ := keys.SchemeFor(rec.Algorithm, rec.Purpose) // a stored record has one
	k := agentwire.Key{
		Name: rec.Name, Purpose: string(rec.Purpose), Backend: rec.Material.Backend,
		Algorithm: string(rec.Algorithm), RSABits: rec.RSABits, Scheme: string(scheme),
		Owner: agentwire.Owner{UID: rec.Owner.UID, User: rec.Owner.User}, Created: rec.Created,
		PublicKey: rec.Material.Public, Chain: rec.Chain, Imported: rec.Material.Imported,
		Persistent: rec.Persistent, PIN: rec.Material.PIN, TLS12: rec.TLS12,
		Servers: []agentwire.Server{}, Fault: a.faults.of(idOf(rec)), UnlockedUntil: a.grants.UnlockedUntil(idOf(rec)),
		Place: wirePlace(rec.Material.Card), Confirm: wireConfirm(rec.Confirm),
	}
	for _, s := range rec.Servers {
		k.Servers = append(k.Servers, agentwire.Server{Address: s.Address, CA: s.CA})
	}
	if k.Chain == nil {
		k.Chain = [][]byte{}
	}
	return k
}
