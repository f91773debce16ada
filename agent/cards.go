package agent

import (
	"bytes"
	"context"
	"fmt"

	"holdfast/agent/store"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
)

// cardHolder returns the device whose keys are on cards.
func (a *Agent) cardHolder() (keys.CardHolder, error) {
	for _, b := range a.Backends {
		if h, ok := b.(keys.CardHolder); ok {
			return h, nil
		}
	}
	return nil, &fault.Error{
		Kind: fault.Unsupported, Message: "this agent uses no cards",
		Hint: "install holdfast-piv and start the agent with --piv on; `holdfast doctor` finds out more",
	}
}

// listCards opens every card for a moment. Only one call at a time does so: other
// programs may need a card as well.
func (r *request) listCards(ctx context.Context, _ *agentwire.Empty) (*agentwire.ListCardsReply, error) {
	if _, err := r.allow(policy.ListCards, "", r.self()); err != nil {
		return nil, err
	}
	holder, err := r.agent.cardHolder()
	if err != nil {
		return nil, err
	}
	if err := r.agent.cardReads.acquire(ctx); err != nil {
		return nil, err
	}
	defer r.agent.cardReads.release()
	cards, err := holder.Cards(ctx)
	if err != nil {
		return nil, err
	}
	reply := &agentwire.ListCardsReply{Cards: []agentwire.Card{}}
	for _, c := range cards {
		reply.Cards = append(reply.Cards, r.wireCard(c))
	}
	return reply, nil
}

func (r *request) wireCard(c keys.Card) agentwire.Card {
	w := agentwire.Card{
		Serial: c.Serial, Reader: c.Reader, Firmware: c.Firmware, State: string(c.State), Reason: c.Reason,
		PINTries: c.PINTries, PUKTries: c.PUKTries,
		DefaultPIN: c.DefaultPIN, DefaultPUK: c.DefaultPUK, DefaultManagement: c.DefaultManagement,
		ProtectedManagement: c.ProtectedManagement, Attests: c.Attests,
		Notes: []agentwire.Notice{}, Slots: []agentwire.CardSlot{},
	}
	w.Hint, w.Next = wireStep(c.Hint, c.Next)
	for _, n := range c.Notes {
		hint, next := wireStep(n.Hint, n.Next)
		w.Notes = append(w.Notes, agentwire.Notice{Message: n.Message, Hint: hint, Next: next})
	}
	for _, s := range c.Slots {
		w.Slots = append(w.Slots, r.wireSlot(c.Serial, s))
	}
	return w
}

// wireSlot names the caller's own key in a slot. Of another user's key it reports only
// that the slot is taken.
func (r *request) wireSlot(serial uint32, s keys.CardSlot) agentwire.CardSlot {
	w := agentwire.CardSlot{
		Slot: s.Slot, Algorithm: string(s.Algorithm), RSABits: s.RSABits, PINPolicy: string(s.PINPolicy), TouchPolicy: string(s.TouchPolicy),
		Generated: s.Generated, PublicKey: s.Public, Certificate: s.Certificate,
	}
	for _, rec := range r.agent.Store.List() {
		p := rec.Material.Card
		if p == nil || p.Serial != serial || p.Slot != s.Slot || s.Public != nil && !bytes.Equal(s.Public, rec.Material.Public) {
			continue
		}
		w.Taken = true
		if r.shows(rec, false) {
			w.Key = rec.Name
		}
	}
	return w
}

func (r *request) setUpCard(ctx context.Context, p *agentwire.SetUpCardParameters) (*agentwire.Empty, error) {
	defer clearAll(p.OldPIN, p.OldPUK, p.OldManagementKey, p.PIN, p.PUK)
	s := keys.CardSetUp{OldPIN: p.OldPIN, OldPUK: p.OldPUK, OldManagementKey: p.OldManagementKey, PIN: p.PIN, PUK: p.PUK}
	return r.manageCard(ctx, p.Card, "set-up", [][]byte{p.PIN, p.PUK}, func(ctx context.Context, h keys.CardHolder) error {
		return h.SetUp(ctx, p.Card, s)
	})
}

func (r *request) changeCardPIN(ctx context.Context, p *agentwire.ChangeCardParameters) (*agentwire.Empty, error) {
	return r.replaceCode(ctx, p.Card, "change-pin", p.Old, p.New, keys.CardHolder.ChangePIN)
}

func (r *request) changeCardPUK(ctx context.Context, p *agentwire.ChangeCardParameters) (*agentwire.Empty, error) {
	return r.replaceCode(ctx, p.Card, "change-puk", p.Old, p.New, keys.CardHolder.ChangePUK)
}

func (r *request) unblockCard(ctx context.Context, p *agentwire.UnblockCardParameters) (*agentwire.Empty, error) {
	return r.replaceCode(ctx, p.Card, "unblock", p.PUK, p.PIN, keys.CardHolder.Unblock)
}

// replaceCode has a card accept one code and replace a code with the other one.
func (r *request) replaceCode(ctx context.Context, card uint32, action string, old, new []byte, replace func(h keys.CardHolder, ctx context.Context, card uint32, old, new []byte) error) (*agentwire.Empty, error) {
	defer clearAll(old, new)
	return r.manageCard(ctx, card, action, [][]byte{old, new}, func(ctx context.Context, h keys.CardHolder) error {
		return replace(h, ctx, card, old, new)
	})
}

// storeInSlot writes the leaf into the slot of a key on a card, where other programs
// look for it, when the caller gives the card's PIN or management key. Without them it tries
// only if the key is unlocked, and a failure is logged and no error: a renewal at night has
// neither a user nor, perhaps, the card.
func (r *request) storeInSlot(ctx context.Context, rec store.Record, p *agentwire.InstallCertificateParameters) error {
	place := rec.Material.Card
	holder, err := r.agent.cardHolder()
	switch {
	case place == nil && len(p.PIN)+len(p.ManagementKey) == 0:
		return nil
	case place == nil:
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("key %q is not on a card: its certificate takes no PIN and no management key", rec.Name)}
	case err != nil:
		return err
	case len(p.PIN)+len(p.ManagementKey) == 0:
		if r.agent.grants.UnlockedUntil(idOf(rec)) != nil {
			err = holder.StoreCertificate(ctx, rec.Material, p.Chain[0], nil, nil)
		}
		if err != nil {
			r.agent.Log.Info("the slot keeps its old certificate", "key", rec.Name, "error", err)
		}
		return nil
	}
	if len(p.PIN) > 0 {
		if err := keys.CheckCardPIN(p.PIN); err != nil {
			return err
		}
	}
	if err := r.mayTry(place.Serial); err != nil {
		return err
	}
	return holder.StoreCertificate(ctx, rec.Material, p.Chain[0], p.PIN, p.ManagementKey)
}

// manageCard has policy decide, records the decision and runs work on a card, which
// counts wrong codes itself. It rejects what cannot be a code before the card sees it.
func (r *request) manageCard(ctx context.Context, serial uint32, action string, codes [][]byte, work func(context.Context, keys.CardHolder) error) (*agentwire.Empty, error) {
	e, err := r.allow(policy.ManageCards, "", r.self())
	if err != nil {
		return nil, err
	}
	e.detail = map[string]string{"card": fmt.Sprint(serial), "action": action}
	holder, err := r.agent.cardHolder()
	for _, code := range codes {
		if err == nil {
			err = keys.CheckCardPIN(code)
		}
	}
	if err != nil {
		return nil, r.deny(e, err)
	}
	if err := r.permit(e); err != nil {
		return nil, err
	}
	return &agentwire.Empty{}, r.outcome(e, work(ctx, holder))
}

func clearAll(secrets ...[]byte) {
	for _, s := range secrets {
		clear(s)
	}
}
