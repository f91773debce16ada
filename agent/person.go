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

// A Person gives a PIN or a confirmation when asked, and sees that a device waits for a
// touch. [prompt.Prompter] documents how each of these ends.
type Person interface {
	PIN(ctx context.Context, s prompt.Subject) ([]byte, error)
	Confirm(ctx context.Context, s prompt.Subject) error
	Touch(s prompt.Subject) (done func())
}

// A Rememberer is a Person that stores the PINs that the device accepted.
type Rememberer interface {
	Person
	Store(s prompt.Subject, pin []byte)
}

var _ Person = (*prompt.Prompter)(nil)

// askUser gets from a user what the key needs before it signs: its PIN while it is
// locked, and a confirmation where it needs one. It holds neither a lock nor a turn in
// the queue while it waits.
func (r *request) askUser(ctx context.Context, op policy.Operation, rec store.Record) error {
	if rec.Material.PIN && r.agent.grants.UnlockedUntil(idOf(rec)) == nil {
		if err := r.askPIN(ctx, pinRequest{op: op, rec: rec, lasts: r.agent.Limits.UnlockDefault}); err != nil {
			return err
		}
	}
	return r.confirm(ctx, op, rec)
}

// subject returns what a prompt shows of the process that wants to use rec. Where the
// caller reported another process, the prompt is for that process and says that it was
// only reported.
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

// process identifies the process that wants to use a key, or is empty when it cannot.
// The process that reports another one is part of the identity: a report proves
// nothing, so a confirmation for it counts only for reports by the same process.
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

// secretName identifies the PIN of m. All keys on a card have one PIN.
func secretName(m keys.Material) string {
	if m.Card != nil {
		return secretOfCard(m.Card.Serial)
	}
	return shortSum(m.Public)
}

// secretOfCard identifies a card's PIN. A public key, which secretName uses for other
// keys, is DER and cannot begin with the same bytes.
func secretOfCard(serial uint32) string { return shortSum(fmt.Appendf(nil, "card:%d", serial)) }

func shortSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// deviceName returns the name of the device that holds m, for people.
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
