package agent_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"holdfast/agent/prompt"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// person sits in front of the machine: what it is shown waits until the test
// answers.
type person struct {
	shown   chan *shown
	touches chan *shown
	given   []byte // the last PIN, as it was handed over
}

// shown is one prompt, or one notice about a touch.
type shown struct {
	what    string // pin, confirm or touch
	subject prompt.Subject
	answer  chan given
	gone    chan struct{} // closed when it was taken away
}

type given struct {
	pin string
	err error
}

func newPerson() *person {
	return &person{shown: make(chan *shown, 1000), touches: make(chan *shown, 1000)}
}

// withPerson is a change of a rig: the agent can prompt a user.
func withPerson(p *person) func(*rig) { return func(r *rig) { r.options.Person = p } }

// PIN implements agent.Person.
func (p *person) PIN(ctx context.Context, s prompt.Subject) ([]byte, error) {
	a := p.ask(ctx, "pin", s)
	if a.err != nil {
		return nil, &fault.Error{Kind: fault.PINRequired, Message: "the PIN prompt came to nothing", Hint: "holdfast unlock " + s.Key, Err: a.err}
	}
	p.given = []byte(a.pin)
	return p.given, nil
}

// Confirm implements agent.Person.
func (p *person) Confirm(ctx context.Context, s prompt.Subject) error {
	if a := p.ask(ctx, "confirm", s); a.err != nil {
		return &fault.Error{Kind: fault.ConfirmationRequired, Message: "nobody said yes", Err: a.err}
	}
	return nil
}

func (p *person) ask(ctx context.Context, what string, s prompt.Subject) given {
	q := &shown{what: what, subject: s, answer: make(chan given, 1), gone: make(chan struct{})}
	p.shown <- q
	select {
	case a := <-q.answer:
		return a
	case <-ctx.Done():
		close(q.gone)
		return given{err: ctx.Err()}
	}
}

// Touch implements agent.Person.
func (p *person) Touch(s prompt.Subject) func() {
	q := &shown{what: "touch", subject: s, gone: make(chan struct{})}
	p.touches <- q
	return sync.OnceFunc(func() { close(q.gone) })
}

// next returns the next prompt.
func (p *person) next(t *testing.T) *shown { t.Helper(); return soon(t, "a prompt", p.shown) }

// none fails when there is an unanswered prompt.
func (p *person) none(t *testing.T) {
	t.Helper()
	select {
	case q := <-p.shown:
		t.Errorf("a prompt too many: %s %+v", q.what, q.subject)
	default:
	}
}

func soon[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s did not come", what)
	}
	return v
}

func (q *shown) pin(pin string) { q.answer <- given{pin: pin} }
func (q *shown) yes()           { q.answer <- given{} }
func (q *shown) close()         { q.answer <- given{err: prompt.ErrClosed} }
func (q *shown) notReached()    { q.answer <- given{err: fmt.Errorf("no terminal")} }
func (q *shown) notAnswered()   { q.answer <- given{err: prompt.ErrLate} }

const rightPIN = "right-pin"

// withPIN is a change of a key that is to be created.
func withPIN(p *agentwire.CreateKeyParameters) { p.PIN = []byte(rightPIN) }

// signing signs with a key, on a connection of its own, while the test goes on.
func (r *rig) signing(ctx context.Context, key string) <-chan error {
	p := agentwire.SignTLSClientParameters{Key: key, Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client")}
	return r.calling(ctx, agentwire.SignTLSClient, p)
}

// unlocking has the agent ask for a key's PIN while the test goes on.
func (r *rig) unlocking(ctx context.Context, p agentwire.UnlockKeyParameters) <-chan error {
	return r.calling(ctx, agentwire.UnlockKey, p)
}

func (r *rig) calling(ctx context.Context, method string, in any) <-chan error {
	result := make(chan error, 1)
	c := r.dial()
	go func() {
		err := asKeysError(c.Call(ctx, method, in, nil))
		c.Close()
		result <- err
	}()
	return result
}

// waitForPrompts returns when so many requests wait for a user.
func (r *rig) waitForPrompts(n int) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); r.agent.WaitForPerson() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%d requests wait for a person, want %d", r.agent.WaitForPerson(), n)
		}
	}
}

func (r *rig) lock(name string) {
	r.t.Helper()
	if err := r.call(agentwire.LockKeys, agentwire.LockKeysParameters{Name: name}, &agentwire.Empty{}); err != nil {
		r.t.Fatal(err)
	}
}
