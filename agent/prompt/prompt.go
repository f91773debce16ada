// Package prompt lets the agent reach the user in front of the machine: it asks
// for PINs and confirmations, and shows that a key waits for a touch.
//
// Start at [Prompter]. The user's own pinentry asks for a PIN: on the desktop, or
// on the terminal of the process that wants the signature, which comes from the
// kernel and never from that process. Confirmations are asked for on the desktop
// alone: any program that owns a terminal can type on it.
//
// It does not protect against programs of the same user: such a program chooses the
// name that a prompt shows of it, and can show fake prompts of its own. This package
// keeps no PIN.
package prompt

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"holdfast/internal/fault"
)

// A Mode is where a user may be asked.
type Mode string

// The modes.
const (
	Auto     Mode = "auto"     // on the desktop if there is one and the caller is not on a remote terminal; else on the caller's terminal
	Desktop  Mode = "desktop"  // on the desktop alone
	Terminal Mode = "terminal" // on the caller's terminal alone
	Off      Mode = "off"      // nowhere: PINs come from `holdfast unlock` alone
)

// Options configures a [Prompter].
type Options struct {
	Mode     Mode
	Pinentry string       // the program; "": the system's pinentry for the desktop, pinentry-curses or pinentry-tty on terminals
	Log      *slog.Logger // nil: slog.Default()
}

// Subject describes a prompt: the process, the key and its use. This package quotes
// every text in it, since some come from callers.
type Subject struct {
	UID      uint32 // the process's user
	PID      int32  // the process that wants the key used: the agent's peer, or the one that its peer reports
	Start    uint64 // its start, in clock ticks after boot, as in /proc/PID/stat
	Verified bool   // the kernel identified the process; else the agent's peer reported it

	ReportedBy int32 // the peer's process, unless Verified

	Key         string
	Purpose     string
	Operation   string
	Destination string // the verified recipient of the signature; "" when none is verified
	Device      string // "TPM", "card 12345678"
	Secret      string // names the PIN for as long as it exists; not secret itself
	Tries       int    // PIN tries left; 0 when unknown
	Again       string // why the PIN is asked for again: "wrong PIN"; "" the first time
}

// Prompter asks the user. Its methods are safe for concurrent use, hold no lock
// while they wait for a user, and end with their context. Each place, a terminal
// or the desktop, shows one prompt at a time; later prompts wait.
type Prompter struct {
	o      Options
	uid    uint32              // of this process: no other user is asked
	dirs   []string            // that hold pinentries
	getenv func(string) string // this process's environment
	limits limits
	turns  turns
}

// New makes a Prompter. It starts no program before the first prompt.
func New(o Options) *Prompter {
	if o.Mode == "" {
		o.Mode = Auto
	}
	return &Prompter{o: o, uid: uint32(os.Geteuid()), dirs: pinentryDirs, getenv: os.Getenv, limits: limits{start: startLimit, answer: AnswerTimeout}}
}

func (p *Prompter) log() *slog.Logger {
	if p.o.Log != nil {
		return p.o.Log
	}
	return slog.Default()
}

// AnswerTimeout is how long a prompt waits for one answer, unless the context ends
// before.
const AnswerTimeout = 55 * time.Second

// PIN asks for a PIN, which the caller wipes. It returns a pin-required
// [fault.Error] when the user closes the prompt or does not answer, and at once
// where no prompt can be shown. When ctx ends, its error is in the chain.
func (p *Prompter) PIN(ctx context.Context, s Subject) ([]byte, error) {
	pin, err := p.pin(ctx, s)
	if err != nil {
		return nil, p.fail(ctx, fault.PINRequired, s, err)
	}
	return pin, nil
}

func (p *Prompter) pin(ctx context.Context, s Subject) ([]byte, error) {
	if p.o.Mode != Auto && p.o.Mode != Desktop && p.o.Mode != Terminal {
		return nil, problem("the key needs its PIN, and this agent does not prompt", nil)
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

// Touch shows a notice on the desktop that a key waits for a touch, from
// [TouchDelay] after the call until done is called. Without a desktop, or when the
// user is not at it, Touch writes a line on the terminal of a program for which
// another one asks, such as kubectl; a program that calls the agent itself can
// write its own line. Touch and done return at once. When no notice can be shown, only
// the log says so.
func (p *Prompter) Touch(s Subject) (done func()) {
	if p.o.Mode != Auto && p.o.Mode != Desktop && p.o.Mode != Terminal {
		return func() {}
	}
	ctx, done := context.WithTimeout(context.Background(), maxNotice)
	go p.notify(ctx, s)
	return done
}

// TouchDelay is how long a device may take to answer before the notice that it
// waits for a touch is shown.
const TouchDelay = 700 * time.Millisecond
