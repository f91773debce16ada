package store

import (
	"errors"
	"fmt"
	"slices"

	"holdfast/internal/keys"
)

// Confirm is when a user has to confirm the use of a key.
type Confirm struct {
	When    When `json:"when"`
	Minutes int  `json:"minutes,omitempty"` // with OncePerProcess: how long a confirmation holds, 1 to MaxConfirmMinutes
}

// When is how long a user's confirmation holds.
type When string

// The times.
const (
	Once           When = "once"    // until the key is locked or the agent restarts
	OncePerProcess When = "process" // for one process and a number of minutes
	Always         When = "always"  // for one signature
)

// MaxConfirmMinutes is the longest time that a confirmation for a process holds.
const MaxConfirmMinutes = 60

// Check returns the first thing that is wrong with c.
func (c Confirm) Check() error {
	switch c.When {
	case Once, Always:
		if c.Minutes != 0 {
			return fmt.Errorf("confirmation %s takes no minutes", c.When)
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

// checkCard checks the key's place on a card, which its backend writes and callers
// see.
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
