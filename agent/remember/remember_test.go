package remember_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"holdfast/agent/prompt"
	"holdfast/agent/remember"
	"holdfast/internal/keyring"
	"holdfast/test/desktop"
)

// person is asked, counts, and says the next of its answers.
type person struct {
	remember.Prompter
	answers []string
	asked   int
}

func (p *person) PIN(context.Context, prompt.Subject) ([]byte, error) {
	p.asked++
	if len(p.answers) == 0 {
		return nil, errors.New("nobody is there")
	}
	answer := p.answers[0]
	p.answers = p.answers[1:]
	return []byte(answer), nil
}

// desk is a user at a desktop with a keyring.
func desk(t *testing.T, answers ...string) (*remember.Person, *person, *desktop.Keyring) {
	t.Helper()
	bus := desktop.StartBus(t)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus.Address)
	ring := bus.StartKeyring()
	asked := &person{answers: answers}
	return remember.New(asked, keyring.New(), slog.New(slog.DiscardHandler)), asked, ring
}

func give(t *testing.T, p *remember.Person, s prompt.Subject, want string) {
	t.Helper()
	got, err := p.PIN(t.Context(), s)
	if err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestRightPINIsNotAskedForAgain(t *testing.T) {
	p, asked, _ := desk(t, "123123", "777777")
	mine, other := prompt.Subject{Secret: "a"}, prompt.Subject{Secret: "b"}
	give(t, p, mine, "123123")
	if asked.asked != 1 {
		t.Fatalf("asked %d times", asked.asked)
	}
	p.Store(mine, []byte("123123"))
	for range 3 {
		give(t, p, mine, "123123")
	}
	if asked.asked != 1 {
		t.Errorf("asked %d times, although it is remembered", asked.asked)
	}
	give(t, p, other, "777777") // another PIN is not this one
}

// A PIN that was changed elsewhere is tried once.
func TestWrongPINIsForgotten(t *testing.T) {
	p, asked, _ := desk(t, "new-pin")
	s := prompt.Subject{Secret: "a"}
	p.Store(s, []byte("old-pin"))
	give(t, p, s, "old-pin")
	s.Again = "wrong PIN"
	give(t, p, s, "new-pin")
	s.Again = ""
	if _, err := p.PIN(t.Context(), s); err == nil {
		t.Error("the wrong PIN is remembered still")
	}
	if asked.asked != 2 {
		t.Errorf("asked %d times, want 2", asked.asked)
	}
}

// The last try but one is the user's.
func TestFewTriesArePeoples(t *testing.T) {
	p, asked, _ := desk(t, "typed")
	p.Store(prompt.Subject{Secret: "a"}, []byte("remembered"))
	give(t, p, prompt.Subject{Secret: "a", Tries: 2}, "remembered")
	give(t, p, prompt.Subject{Secret: "a", Tries: 1}, "typed")
	if asked.asked != 1 {
		t.Errorf("asked %d times, want 1", asked.asked)
	}
}

func TestLockedKeyringMeansAsking(t *testing.T) {
	p, asked, ring := desk(t, "typed", "again")
	p.Store(prompt.Subject{Secret: "a"}, []byte("remembered"))
	ring.Lock()
	give(t, p, prompt.Subject{Secret: "a"}, "typed")
	p.Store(prompt.Subject{Secret: "a"}, []byte("typed")) // stores nothing, and does no harm
	give(t, p, prompt.Subject{Secret: "a"}, "again")
	if asked.asked != 2 {
		t.Errorf("asked %d times, want 2", asked.asked)
	}
}
