package prompt

import (
	"context"

	"holdfast/internal/fault"
)

// Confirm asks the user to confirm the use of a key, on the desktop alone. It
// returns a confirmation-required [fault.Error] where there is no desktop and for
// every answer but a confirmation. When ctx ends, its error is in the chain.
func (p *Prompter) Confirm(ctx context.Context, s Subject) error {
	if err := p.confirm(ctx, s); err != nil {
		return p.fail(ctx, fault.ConfirmationRequired, s, err)
	}
	return nil
}

// confirm never uses a terminal: any program that owns a terminal can type on it,
// and the program that asks for the key may own one.
func (p *Prompter) confirm(ctx context.Context, s Subject) error {
	if p.o.Mode != Auto && p.o.Mode != Desktop {
		return problem("the key needs a user's confirmation, and this agent does not ask on the desktop", nil)
	}
	who, err := identify(s, p.uid)
	if err != nil {
		return err
	}
	at, err := p.desktop(ctx)
	if err != nil {
		return err
	}
	_, err = p.ask(ctx, at, question{who: who, text: explain("allow the use of key", s, askedBy(who, s)), confirm: true})
	return err
}
