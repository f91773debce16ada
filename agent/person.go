package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"holdfast/agent/prompt"
	"holdfast/agent/store"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
)

// A Person can be asked for a PIN or a yes, and told that a device waits for a
// touch. [prompt.Prompter] says how each of these ends.
type Person interface {
	PIN(ctx context.Context, s prompt.Subject) ([]byte, error)
	Confirm(ctx context.Context, s prompt.Subject) error
	Touch(s prompt.Subject) (done func())
}

// A Rememberer is a Person who is told which PINs were right.
type Rememberer interface {
	Person
	Right(s prompt.Subject, pin []byte)
}

var _ Person = (*prompt.Prompter)(nil)

// attended gets from a person what the key wants before it signs: its PIN while
// it is locked, and a yes. Nothing is held meanwhile, neither a lock nor a turn.
func (r *request) attended(ctx context.Context, op policy.Operation, rec store.Record) error {
	if rec.Material.PIN && r.agent.grants.UnlockedUntil(idOf(rec)) == nil {
		if err := r.askPIN(ctx, asked{op: op, rec: rec, lasts: r.agent.Limits.UnlockDefault}); err != nil {
			return err
		}
	}
	return r.confirm(ctx, op, rec)
}

// subject is what a prompt says of who wants rec used. A process that was only
// reported is the one whose person is asked; the prompt says so.
func (r *request) subject(op policy.Operation, rec store.Record) prompt.Subject {
	p := r.conn.peer
	s := prompt.Subject{
		UID: p.UID, PID: p.PID, Start: p.StartTime, Verified: true,
		Key: rec.Name, Purpose: string(rec.Purpose), Operation: string(op), Device: deviceName(rec.Material),
		Secret: secretName(rec.Material),
	}
	if who := r.reported; who != nil {
		s.UID, s.PID, s.Start, s.Verified, s.ReportedBy = who.UID, who.PID, who.Start, false, p.PID
	}
	return s
}

// process tells the process that wants a key used from every other one, or is
// empty when it cannot. Who reports a process is part of it: a report proves
// nothing, so it is worth nothing to anybody else.
func (r *request) process() string {
	p := r.conn.peer
	if p.StartTime == 0 {
		return ""
	}
	name := fmt.Sprintf("%d/%d", p.PID, p.StartTime)
	if who := r.reported; who != nil {
		name += fmt.Sprintf(" for %d/%d", who.PID, who.Start)
	}
	return name
}

// secretName tells a PIN from every other one: a card has one for all its keys.
func secretName(m keys.Material) string {
	if m.Card != nil {
		return secretOfCard(m.Card.Serial)
	}
	return shortSum(m.Public)
}

// secretOfCard is secretName of a card's PIN. A key's public key is DER, which
// begins otherwise.
func secretOfCard(serial uint32) string { return shortSum(fmt.Appendf(nil, "card:%d", serial)) }

func shortSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// deviceName is what people call the device that m is on.
func deviceName(m keys.Material) string {
	switch {
	case m.Card != nil:
		return cardName(m.Card.Serial)
	case m.Backend == "tpm":
		return "TPM"
	}
	return m.Backend
}

func cardName(serial uint32) string { return fmt.Sprintf("card %d", serial) }
