package store

import (
	"errors"
	"fmt"
	"slices"

	"holdfast/internal/keys"
)

// Confirm says when a person has to say yes to the use of a key.
type Confirm struct {
	When    When `json:"when"`
	Minutes int  `json:"minutes,omitempty"` // with OncePerProcess: how long a yes holds, 1 to MaxConfirmMinutes
}

// When is how long a person's yes holds.
type When string

// The times.
const (
	Once           When = "once"    // until the key is locked or the agent starts anew
	OncePerProcess When = "process" // for one process, and so many minutes
	Always         When = "always"  // for one signature
)

// MaxConfirmMinutes is the longest time that a yes for a process holds.
const MaxConfirmMinutes = 60

// Check returns what is wrong with c, as one fact.
func (c Confirm) Check() error {
	switch c.When {
	case Once, Always:
		if c.Minutes != 0 {
			return fmt.Errorf("a confirmation %s holds for no number of minutes", c.When)
		}
	case OncePerProcess:
		if c.Minutes < 1 || c.Minutes > MaxConfirmMinutes {
			return fmt.Errorf("a confirmation for a process holds for 1 to %d minutes", MaxConfirmMinutes)
		}
	default:
		return fmt.Errorf("confirmation %.40q is not known: once, process or always", c.When)
	}
	return nil
}

func (r *Record) checkConfirm() error {
	if r.Confirm == nil {
		return nil
	}
	return r.Confirm.Check()
}

// checkCard checks where the key is, which nobody but its backend writes and
// everybody is shown.
func (r *Record) checkCard() error {
	p := r.Material.Card
	if p == nil {
		return nil
	}
	if _, err := keys.ParseSlot(p.Slot); err != nil {
		return err
	}
	switch {
	case p.Serial == 0:
		return errors.New("a card without a serial number")
	case !slices.Contains(keys.PINPolicies(), p.PINPolicy):
		return fmt.Errorf("PIN policy %.40q", p.PINPolicy)
	case !slices.Contains(keys.TouchPolicies(), p.TouchPolicy):
		return fmt.Errorf("touch policy %.40q", p.TouchPolicy)
	}
	return nil
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
