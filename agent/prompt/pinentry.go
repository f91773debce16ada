package prompt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdfast/internal/proc"
)

// startLimit is how long a pinentry may take until it shows its prompt.
const startLimit = 10 * time.Second

// limits bounds how long a pinentry may take to start, and a user to answer.
type limits struct{ start, answer time.Duration }

// A question is shown to a user in one place.
type question struct {
	who     proc.Stat
	text    string // describes the key, its use and the caller
	fault   string // why the question is asked again; "" the first time
	confirm bool   // asks for a confirmation rather than a PIN
}

// ask waits for its turn in a place, shows the question there with the first
// program that can, and returns the PIN.
func (p *Prompter) ask(ctx context.Context, at place, q question) ([]byte, error) {
	give, err := p.turns.take(ctx, at.name)
	if err != nil {
		return nil, err
	}
	defer give()
	last := error(errUnusable)
	for _, path := range at.programs {
		pin, err := p.run(ctx, path, at, q)
		if !errors.Is(err, errUnusable) {
			return pin, err
		}
		p.log().Debug("pinentry cannot be used", "pinentry", path, "error", err)
		last = err
	}
	return nil, last
}

// run asks with one program.
func (p *Prompter) run(ctx context.Context, path string, at place, q question) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(p.limits.answer, func() { cancel(ErrLate) })
	defer late.Stop()
	if err := p.still(q.who, at); err != nil { // the question may have waited for its turn
		return nil, err
	}
	stopped := p.watch(ctx, cancel, at, q)
	defer func() { cancel(nil); <-stopped }()
	if at.terminal != nil {
		t, err := at.terminal.borrow(p.uid)
		if err != nil {
			return nil, problem("the terminal of the program that wants the key cannot be used", err)
		}
		defer t.close()
		defer func() { t.restore(p.still(q.who, at) == nil) }()
	}
	pin, err := p.converse(ctx, cancel, path, at, q)
	if ctx.Err() != nil {
		clear(pin)
		return nil, context.Cause(ctx)
	}
	return pin, err
}

// converse starts the program and asks with it. The program is gone when it
// returns.
func (p *Prompter) converse(ctx context.Context, cancel context.CancelCauseFunc, path string, at place, q question) ([]byte, error) {
	slow := time.AfterFunc(p.limits.start, func() { cancel(errUnusable) })
	defer slow.Stop()
	c, err := launch(path, at.env)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnusable, err)
	}
	stop := context.AfterFunc(ctx, c.expire)
	defer stop()
	a := newAssuan(c.out, c.in)
	defer a.wipe()
	if err := prepare(a, at, q, seconds(ctx, p.limits.answer)); err != nil {
		c.end(false)
		return nil, fmt.Errorf("%w: %w", errUnusable, err)
	}
	slow.Stop()
	pin, err := answer(a, q)
	c.end(err == nil || errors.Is(err, ErrClosed))
	return pin, err
}

// prepare sends the program the place and the question.
func prepare(a *assuan, at place, q question, seconds int) error {
	if err := a.reply(); err != nil { // its greeting
		return err
	}
	if at.terminal == nil {
		if err := graphical(a); err != nil {
			return err
		}
	}
	for _, s := range settings(at, q, seconds) {
		err := a.command(s.word, s.argument)
		var refused *replyError
		if err != nil && (s.must || !errors.As(err, &refused)) {
			return fmt.Errorf("%s: %w", s.word, err)
		}
	}
	return nil
}

// graphical fails unless the program shows windows. A program that can draw on
// terminals as well reports its mode in its flavor.
func graphical(a *assuan) error {
	if err := a.command("GETINFO", "flavor"); err != nil {
		return err
	}
	for part := range strings.SplitSeq(string(a.data), ":") {
		if part == "" || part == "curses" || part == "tty" || part == "dumb" || part == "emacs" {
			return errTextual
		}
	}
	return nil
}

// A setting is one command before the question. A prompt without a required (must)
// setting would appear in the wrong place or not describe its subject. An old
// pinentry may reject the others.
type setting struct {
	word, argument string
	must           bool
}

func settings(at place, q question, seconds int) []setting {
	list := []setting{{"OPTION", "no-grab", false}}
	if at.terminal != nil {
		list = append(list, setting{"OPTION", "ttyname=" + at.terminal.path, true})
		if at.kind != "" {
			list = append(list, setting{"OPTION", "ttytype=" + at.kind, true})
		}
		if at.locale != "" {
			list = append(list, setting{"OPTION", "lc-ctype=" + at.locale, false})
		}
	}
	list = append(list,
		setting{"SETKEYINFO", "--clear", false}, // leaves an external cache no name for the PIN
		setting{"SETTIMEOUT", fmt.Sprint(seconds), false},
		setting{"SETTITLE", "holdfast", false},
		setting{"SETDESC", q.text, true},
	)
	if q.fault != "" {
		list = append(list, setting{"SETERROR", q.fault, false})
	}
	if q.confirm {
		return append(list, setting{"SETOK", "Allow", true}, setting{"SETCANCEL", "Refuse", true})
	}
	return append(list, setting{"SETPROMPT", "PIN:", false})
}

// seconds returns the program's own timeout: a second less than it has, so that it
// ends by itself and restores the screen.
func seconds(ctx context.Context, left time.Duration) int {
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	return max(1, int(left/time.Second)-1)
}

// answer asks, and returns the PIN that was typed.
func answer(a *assuan, q question) ([]byte, error) {
	word := "GETPIN"
	if q.confirm {
		word = "CONFIRM"
	}
	if err := a.command(word, ""); err != nil {
		return nil, outcome(err)
	}
	if q.confirm {
		return nil, nil
	}
	pin := a.take()
	if len(pin) == 0 {
		return nil, problem("no PIN was typed", ErrClosed)
	}
	return pin, nil
}

// outcome translates the error of a question that was not answered.
func outcome(err error) error {
	var refused *replyError
	if !errors.As(err, &refused) {
		return fmt.Errorf("%w: %w", errUnusable, err)
	}
	switch refused.number() {
	case codeCanceled, codeFullyCanceled, codeNotConfirmed:
		return ErrClosed
	case codeTimeout:
		return ErrLate
	}
	return fmt.Errorf("%w: %w", errUnusable, err)
}

// watchInterval is how often the agent checks whether the caller still waits.
const watchInterval = 500 * time.Millisecond

// watch ends the prompt when the caller ends, which may have reached this agent
// through another program, and when another job gets the caller's terminal. It
// stops with ctx and then closes the channel.
func (p *Prompter) watch(ctx context.Context, cancel context.CancelCauseFunc, at place, q question) <-chan struct{} {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if p.still(q.who, at) != nil {
					cancel(errGone)
				}
			}
		}
	}()
	return stopped
}

// still returns errGone when the process has ended, or is no longer in the
// foreground of the terminal.
func (p *Prompter) still(who proc.Stat, at place) error {
	now, err := look(who.PID)
	if err != nil || now.Start != who.Start {
		return errGone
	}
	if t := at.terminal; t != nil && (now.Terminal != t.device || now.Foreground != now.Group) {
		return errGone
	}
	return nil
}
