package prompt

import (
	"context"

	"holdfast/internal/fault"
)

// Confirm asks for a yes, on the desktop alone. Without one, and for anything but
// a yes, it is a confirmation-required [fault.Error]. When ctx ends, its error is
// in the chain.
func (p *Prompter) Confirm(ctx context.Context, s Subject) error {
	if err := p.confirm(ctx, s); err != nil {
		return p.fail(ctx, fault.ConfirmationRequired, s, err)
	}
	return nil
}

// confirm has no other place to go to: whoever owns a terminal can type on it,
// and a program that asks for the key may well own one.
func (p *Prompter) confirm(ctx context.Context, s Subject) error {
	if p.o.Mode != Auto && p.o.Mode != Desktop {
		return problem("the key wants a person's yes, and this agent does not ask on the desktop", nil)
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
