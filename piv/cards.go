package piv

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"sync"

	"holdfast/agent/keys"
	"holdfast/piv/attestation"
	"holdfast/piv/wire"
)

// Cards looks at every card, all at once, and says of every reader whose card is
// not known why. That there is no card is no error.
func (p *PIV) Cards(ctx context.Context) ([]keys.Card, error) {
	if err := p.scanner.settle(ctx); err != nil {
		return nil, err
	}
	known, others, err := p.scanner.inventory()
	if err != nil {
		return nil, err
	}
	list := make([]keys.Card, len(known))
	var all sync.WaitGroup
	for i, c := range known {
		all.Go(func() { list[i] = p.inspect(ctx, c) })
	}
	all.Wait()
	return append(list, others...), nil
}

// inventory lists the cards that are known, and what is said of the others.
func (s *scanner) inventory() (known []card, others []keys.Card, err error) {
	known = s.cards()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return nil, nil, s.fault
	}
	for _, r := range s.byName() {
		if r.fault == nil {
			continue
		}
		c := keys.Card{Reader: r.name, State: stateOf(r.fault), Reason: r.fault.Message, Hint: r.fault.Hint}
		others = append(others, noted(c))
	}
	return known, others, nil
}

// inspect asks one card about itself.
func (p *PIV) inspect(ctx context.Context, c card) keys.Card {
	reply, _, err := c.worker.ask(ctx, c.serial, wire.Request{Op: wire.Inspect}, p.brief())
	if err == nil && reply.Card == nil {
		err = silent("itself")
	}
	if err != nil {
		e, _ := keys.AsError(err)
		failed := keys.Card{Serial: c.serial, Reader: c.reader, Firmware: c.firmware, State: stateOf(e), Reason: e.Message, Hint: e.Hint}
		if failed.State == "" {
			failed.State = keys.StateFailed
		}
		return noted(failed)
	}
	found := *reply.Card
	found.Serial, found.Reader, found.Firmware, found.State = c.serial, c.reader, c.firmware, keys.StateReady
	found.Attests = p.attests(ctx, c, found)
	c.worker.learn(found.PINTries, nil)
	return noted(found)
}

// attests has the card prove that it made one of its keys, if it says so of any.
func (p *PIV) attests(ctx context.Context, c card, found keys.Card) *bool {
	for _, s := range found.Slots {
		if s.Generated == nil || !*s.Generated || s.Public == nil {
			continue
		}
		reply, _, err := c.worker.ask(ctx, c.serial, wire.Request{Op: wire.Slot, Slot: s.Slot, Attest: true}, p.brief())
		if err != nil {
			return nil
		}
		k := key{public: s.Public, record: record{Serial: c.serial, Slot: s.Slot, Firmware: c.firmware, Attestation: reply.Attestation}}
		k.PINPolicy, k.TouchPolicy = attestation.AnyPolicy, attestation.AnyPolicy
		good := k.proven(p.config.Roots) == nil
		return &good
	}
	return nil
}

// fewTries is how many tries of a PIN or PUK are few.
const fewTries = 2

// noted completes a card with what its owner should know.
func noted(c keys.Card) keys.Card {
	add := func(message, hint string) { c.Notes = append(c.Notes, keys.CardNote{Message: message, Hint: hint}) }
	if c.State == keys.StateBusy {
		add(c.Reason, "let other programs share the reader: pcsc-shared and disable-ccid in ~/.gnupg/scdaemon.conf")
	}
	if c.State != keys.StateReady {
		return c
	}
	setup := fmt.Sprintf("holdfast piv setup --card %d", c.Serial)
	for name, is := range map[string]*bool{"PIN": c.DefaultPIN, "PUK": c.DefaultPUK, "management key": c.DefaultManagement} {
		if is != nil && *is {
			add("the "+name+" is the factory's, which everybody knows", setup)
		}
	}
	if c.PINTries != nil && *c.PINTries <= fewTries {
		add(fmt.Sprintf("%d tries of the PIN are left, the last of which is never spent", *c.PINTries), fmt.Sprintf("holdfast piv unblock --card %d, with the PUK", c.Serial))
	}
	if c.PUKTries != nil && *c.PUKTries <= fewTries {
		add(fmt.Sprintf("%d tries of the PUK are left", *c.PUKTries), "without its PUK a card whose PIN is blocked can only be reset, and loses its keys")
	}
	if c.Attests != nil && !*c.Attests {
		add("the card does not prove that it made its keys", "name its root with piv-roots, or make keys with --allow-unattested")
	}
	for _, w := range attestation.Warnings(c.Firmware, "") {
		add(w.Message, w.Hint)
	}
	return c
}

// SetUp implements keys.CardHolder. A new management key is made in any case.
func (p *PIV) SetUp(ctx context.Context, serial uint32, s keys.CardSetUp) error {
	for _, secret := range []struct {
		name     string
		new, old []byte
	}{{"PIN", s.PIN, s.OldPIN}, {"PUK", s.PUK, s.OldPUK}} {
		if err := keys.CheckCardPIN(secret.new); err != nil {
			return err
		}
		if len(secret.old) > 0 {
			if err := keys.CheckCardPIN(secret.old); err != nil {
				return err
			}
		}
		if factory[secret.name] == string(secret.new) {
			return &keys.Error{Kind: keys.BadRequest, Message: "the new " + secret.name + " is the factory's, which everybody knows", Hint: "choose another one"}
		}
	}
	return p.manage(ctx, serial, wire.Request{
		Op: wire.SetUp, Old: s.OldPIN, OldPUK: s.OldPUK, ManagementKey: s.OldManagementKey, PIN: s.PIN, PUK: s.PUK,
	})
}

// maxCertificate is how long a certificate may be, in bytes: a PIV data object
// holds less than 3 KiB.
const maxCertificate = 3 << 10

// StoreCertificate implements keys.CardHolder. The certificate must be about the
// key.
func (p *PIV) StoreCertificate(ctx context.Context, m keys.Material, certificate, pin []byte) error {
	k, err := parse(m)
	if err != nil {
		return err
	}
	if err := k.certifiedBy(certificate); err != nil {
		return err
	}
	if len(pin) > 0 {
		if err := keys.CheckCardPIN(pin); err != nil {
			return err
		}
	}
	c, err := p.scanner.find(ctx, k.Serial)
	if err != nil {
		return err
	}
	if len(pin) == 0 && !c.worker.usable(k.id) {
		return &keys.Error{Kind: keys.PINRequired, Message: fmt.Sprintf("card %d wants its PIN before it stores a certificate", k.Serial), Hint: "unlock the key, or give the PIN"}
	}
	_, _, err = c.worker.ask(ctx, k.Serial, wire.Request{
		Op: wire.Certificate, Slot: k.Slot, Public: k.public, PINPolicy: k.PINPolicy, Certificate: certificate, PIN: pin,
	}, p.brief())
	return err
}

// certifiedBy refuses what is no certificate of the key.
func (k *key) certifiedBy(der []byte) error {
	if len(der) > maxCertificate {
		return &keys.Error{Kind: keys.BadRequest, Message: fmt.Sprintf("a certificate of %d bytes does not fit on a card", len(der))}
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return &keys.Error{Kind: keys.BadRequest, Message: "the certificate cannot be read", Err: err}
	}
	public, err := x509.MarshalPKIXPublicKey(certificate.PublicKey)
	if err != nil || !bytes.Equal(public, k.public) {
		return &keys.Error{Kind: keys.KeyMismatch, Message: "the certificate is about another key"}
	}
	return nil
}
