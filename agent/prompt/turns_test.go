package prompt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
)

// TestOnePromptAtATime: a second question for a terminal waits for the first,
// while other places are free.
func TestOnePromptAtATime(t *testing.T) {
	pane, elsewhere := newPane(t, "wait"), newPane(t, "wait")
	p := bare(t, "pinentry-tty")
	first, second := subject(t, pane.pid), subject(t, pane.pid)
	first.Key, second.Key = "first", "second"
	one := asking(t.Context(), p, first)
	pane.prompted(`PIN of key: "first"`)
	two := asking(t.Context(), p, second)
	waiting(t, p, 2)

	other := asking(t.Context(), p, subject(t, elsewhere.pid))
	elsewhere.prompted(`PIN of key: "alice"`)
	elsewhere.Press("3333", "Enter")
	if a := within(t, other); string(a.pin) != "3333" {
		t.Errorf("elsewhere: got %q, %v", a.pin, a.err)
	}

	if screen := pane.Screen(); strings.Contains(screen, "second") {
		t.Errorf("two prompts on one terminal:\n%s", screen)
	}
	pane.Press("1111", "Enter")
	if a := within(t, one); string(a.pin) != "1111" {
		t.Errorf("first: got %q, %v", a.pin, a.err)
	}
	pane.prompted(`PIN of key: "second"`)
	pane.Press("2222", "Enter")
	if a := within(t, two); string(a.pin) != "2222" {
		t.Errorf("second: got %q, %v", a.pin, a.err)
	}
	if len(p.turns.places) != 0 {
		t.Errorf("%d places are still remembered", len(p.turns.places))
	}
}

// waiting waits until so many use one place or wait for it.
func waiting(t *testing.T, p *Prompter, want int) {
	t.Helper()
	eventually(t, func() error {
		p.turns.mu.Lock()
		defer p.turns.mu.Unlock()
		for _, one := range p.turns.places {
			if one.uses == want {
				return nil
			}
		}
		return fmt.Errorf("nobody waits: %d places", len(p.turns.places))
	})
}

// TestTurnEndsWithContext: a prompt that waits for another one ends with its context,
// and does not take the turn of the next one.
func TestTurnEndsWithContext(t *testing.T) {
	pinentry := play(t, "pinentry", script{Replies: gnome, Hang: "GETPIN"})
	p := onDesktop(pinentry.dir)
	ctx, cancel := context.WithCancel(t.Context())
	one := asking(ctx, p, daemon(t))
	pinentry.number("PID")
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	a := within(t, asking(short, p, daemon(t)))
	wantKind(t, a.err, fault.PINRequired, "not answered in time")
	if !errors.Is(a.err, context.DeadlineExceeded) || !errors.Is(a.err, ErrLate) {
		t.Errorf("%v is not the end of the context", a.err)
	}
	cancel()
	within(t, one)
	give, err := p.turns.take(t.Context(), "desktop")
	if err != nil {
		t.Fatal(err)
	}
	give()
	if n := strings.Count(pinentry.log(), "PID"); n != 1 {
		t.Errorf("%d pinentries were started", n)
	}
}
