package piv

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
)

// ChangePIN implements keys.CardHolder. It locks the card's unlocked keys.
func (p *PIV) ChangePIN(ctx context.Context, serial uint32, old, new []byte) error {
	return p.change(ctx, serial, "PIN", wire.Request{Op: wire.ChangePIN, Old: old, New: new})
}

// ChangePUK implements keys.CardHolder.
func (p *PIV) ChangePUK(ctx context.Context, serial uint32, old, new []byte) error {
	return p.change(ctx, serial, "PUK", wire.Request{Op: wire.ChangePUK, Old: old, New: new})
}

// Unblock implements keys.CardHolder. It locks the card's unlocked keys.
func (p *PIV) Unblock(ctx context.Context, serial uint32, puk, new []byte) error {
	return p.change(ctx, serial, "PIN", wire.Request{Op: wire.Unblock, Old: puk, New: new})
}

// change replaces a PIN or PUK with the request's New.
func (p *PIV) change(ctx context.Context, serial uint32, what string, request wire.Request) error {
	if err := keys.CheckCardPIN(request.Old); err != nil {
		return err
	}
	if err := checkNew(what, request.New); err != nil {
		return err
	}
	return p.manage(ctx, serial, request)
}

// checkNew rejects what cannot be a PIN or PUK, and the factory's.
func checkNew(what string, secret []byte) error {
	if err := keys.CheckCardPIN(secret); err != nil {
		return err
	}
	if factory[what] == string(secret) {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("the new %s is the factory default, which is public", what), Hint: "choose another one"}
	}
	return nil
}

// factory holds the secrets of every new YubiKey (developers.yubico.com/PIV, "YubiKey
// and PIV").
var factory = map[string]string{"PIN": "123456", "PUK": "12345678"}

// manage sends a request that changes the card's secrets. It locks the keys that were
// unlocked with the old ones, also after a failure.
func (p *PIV) manage(ctx context.Context, serial uint32, request wire.Request) error {
	r, err := p.scanner.find(ctx, serial)
	if err != nil {
		return aboutCard(err, serial)
	}
	_, _, err = r.worker.ask(ctx, r.serial, request, callOptions{limit: p.config.limits.inspect, grace: p.config.limits.grace})
	r.worker.forget("")
	r.worker.lock("")
	return err
}

// aboutCard rewords an error about a key for a request about a whole card.
func aboutCard(err error, serial uint32) error {
	if fault.KindOf(err) != fault.KeyMismatch || errors.Is(err, errDuplicate) {
		return err
	}
	return &fault.Error{Kind: fault.DeviceAbsent, Message: fmt.Sprintf("card %d is in no reader", serial), Next: fault.Next{Do: fault.InsertCard, Card: serial}}
}

// SetUp implements keys.CardHolder. It always makes a new management key.
func (p *PIV) SetUp(ctx context.Context, serial uint32, s keys.CardSetUp) error {
	for _, secret := range []struct {
		name     string
		new, old []byte
	}{{"PIN", s.PIN, s.OldPIN}, {"PUK", s.PUK, s.OldPUK}} {
		if err := checkNew(secret.name, secret.new); err != nil {
			return err
		}
		if len(secret.old) > 0 {
			if err := keys.CheckCardPIN(secret.old); err != nil {
				return err
			}
		}
	}
	return p.manage(ctx, serial, wire.Request{
		Op: wire.SetUp, Old: s.OldPIN, OldPUK: s.OldPUK, ManagementKey: s.OldManagementKey, PIN: s.PIN, PUK: s.PUK,
	})
}

// maxCertificate is the size of the longest certificate, in bytes: a PIV data object
// holds less than 3 KiB.
const maxCertificate = 3 << 10

// StoreCertificate implements keys.CardHolder. The certificate must be about the
// key.
func (p *PIV) StoreCertificate(ctx context.Context, m keys.Material, certificate, pin, management []byte) error {
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
	if len(pin) == 0 && len(management) == 0 && !c.worker.usable(k.id) {
		return &fault.Error{Kind: fault.PINRequired, Message: fmt.Sprintf("card %d needs its PIN before it stores a certificate", k.Serial), Hint: "unlock the key, or give the PIN"}
	}
	_, _, err = c.worker.ask(ctx, k.Serial, wire.Request{
		Op: wire.Certificate, Slot: k.Slot, Public: k.public, PINPolicy: k.PINPolicy, Certificate: certificate, PIN: pin, ManagementKey: management,
	}, p.proving())
	return err
}

// certifiedBy rejects a certificate that is not valid or is for another key.
func (k *key) certifiedBy(der []byte) error {
	if len(der) > maxCertificate {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("a certificate of %d bytes does not fit on a card", len(der))}
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return &fault.Error{Kind: fault.BadRequest, Message: "the certificate cannot be read", Err: err}
	}
	public, err := x509.MarshalPKIXPublicKey(certificate.PublicKey)
	if err != nil || !bytes.Equal(public, k.public) {
		return &fault.Error{Kind: fault.KeyMismatch, Message: "the certificate is about another key"}
	}
	return nil
}
