// Package prompt is how the agent reaches the person in front of the machine: it
// asks for PINs and for a yes, and says when a key waits for a touch.
//
// Start at [Prompter]. A PIN is asked for by the person's own pinentry: on the
// desktop, or on the terminal of the process that wants the signature, which is
// looked up from the kernel and never taken from what that process says. A yes is
// asked for on the desktop alone: whoever owns a terminal can type on it.
//
// What a prompt shows of its caller is what the caller's name says; a program of
// the same user can fake prompts of its own, and this package does not protect
// against that. It keeps no PIN.
package prompt

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"holdfast/internal/fault"
)

// A Mode says where a person may be asked.
type Mode string

// The modes.
const (
	Auto     Mode = "auto"     // on the desktop if there is one and the caller is not on a remote terminal; else on the caller's terminal
	Desktop  Mode = "desktop"  // on the desktop alone
	Terminal Mode = "terminal" // on the caller's terminal alone
	Off      Mode = "off"      // nowhere: PINs come from `holdfast unlock`
)

// Options says how to reach the person.
type Options struct {
	Mode     Mode
	Pinentry string       // the program; "": the system's pinentry for the desktop, pinentry-curses or pinentry-tty on terminals
	Log      *slog.Logger // nil: slog.Default()
}

// Subject is what a prompt is about. Texts that come from a caller are quoted by
// this package; those who fill it in put in what they know.
type Subject struct {
	UID      uint32 // whose process it is
	PID      int32  // the process that wants the key used: the agent's peer, or the one that its peer reports
	Start    uint64 // its start, in clock ticks after boot, as in /proc/PID/stat
	Verified bool   // the kernel told who it is; else the agent's peer did

	ReportedBy int32 // where it is not Verified: that peer's process

	Key         string
	Purpose     string
	Operation   string
	Destination string // what is known for certain of whom the signature is for; "" when nothing is
	Device      string // "TPM", "card 12345678"
	Secret      string // names the PIN, and stays the same for its life; no secret itself
	Tries       int    // left of the PIN, when known; else 0
	Again       string // why it is asked again: "wrong PIN"; "" the first time
}

// Prompter asks the person. Its methods are safe for concurrent use, hold no lock
// while a person thinks, and end with their context. In one place, a terminal or
// the desktop, there is one prompt at a time; who comes later waits.
type Prompter struct {
	o      Options
	uid    uint32              // this process's: nobody else is asked
	dirs   []string            // where pinentries are
	getenv func(string) string // this process's environment
	limits limits
	turns  turns
}

// New makes a Prompter. It starts no program before somebody is asked.
func New(o Options) *Prompter {
	if o.Mode == "" {
		o.Mode = Auto
	}
	return &Prompter{o: o, uid: uint32(os.Geteuid()), dirs: pinentryDirs, getenv: os.Getenv, limits: limits{start: startLimit, answer: Patience}}
}

func (p *Prompter) log() *slog.Logger {
	if p.o.Log != nil {
		return p.o.Log
	}
	return slog.Default()
}

// Patience is how long a person has for one answer, unless the context ends
// before.
const Patience = 55 * time.Second

// PIN asks for a PIN, which the caller wipes. Where nobody can be asked it fails
// at once with a pin-required [fault.Error], as it does when the person closes the
// prompt or does not answer. When ctx ends, its error is in the chain.
func (p *Prompter) PIN(ctx context.Context, s Subject) ([]byte, error) {
	pin, err := p.pin(ctx, s)
	if err != nil {
		return nil, p.fail(ctx, fault.PINRequired, s, err)
	}
	return pin, nil
}

func (p *Prompter) pin(ctx context.Context, s Subject) ([]byte, error) {
	if p.o.Mode != Auto && p.o.Mode != Desktop && p.o.Mode != Terminal {
		return nil, problem("the key wants its PIN, and this agent does not prompt", nil)
	}
	who, err := identify(s, p.uid)
	if err != nil {
		return nil, err
	}
	places, err := p.places(ctx, who)
	if err != nil {
		return nil, err
	}
	q := question{who: who, text: explain("PIN of key", s, askedBy(who, s)), fault: complaint(s)}
	for _, at := range places {
		var pin []byte
		if pin, err = p.ask(ctx, at, q); !errors.Is(err, errUnusable) {
			return pin, err
		}
	}
	return nil, err
}

// Touch shows a notice on the desktop that a key waits for a touch, if it still
// does so after [TouchDelay], until done is called. Where there is no desktop, or
// the person is elsewhere, it is a line on the terminal of a program for which
// another one asks, such as kubectl; programs that ask themselves know best what to
// write there. Touch returns at once, as done does, and nothing fails where nobody
// can be told.
func (p *Prompter) Touch(s Subject) (done func()) {
	if p.o.Mode != Auto && p.o.Mode != Desktop && p.o.Mode != Terminal {
		return func() {}
	}
	ctx, done := context.WithTimeout(context.Background(), maxNotice)
	go p.notify(ctx, s)
	return done
}

// TouchDelay is how long a device may take to answer before a person is told
// that it waits for a touch.
const TouchDelay = 700 * time.Millisecond
