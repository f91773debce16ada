package main

import (
	"context"
	"os"

	"holdfast/agent"
	"holdfast/agent/logind"
	"holdfast/agent/prompt"
	"holdfast/agent/remember"
	"holdfast/internal/keyring"
)

// person returns the prompts for PINs. The machine's agent has none: it reaches no
// user's terminal or desktop.
func (d *service) person() agent.Person {
	if d.config.System {
		return nil
	}
	p := prompt.New(prompt.Options{Mode: prompt.Mode(d.config.Prompt), Pinentry: d.config.Pinentry, Log: d.Log})
	if d.config.RememberPINs {
		return remember.New(p, keyring.New(), d.Log)
	}
	return p
}

// followPerson locks the keys that a user unlocked when the user leaves: before the
// machine sleeps, and when the screen locks. Without logind it does nothing.
func (d *service) followPerson(ctx context.Context) error {
	o := logind.Options{Log: d.Log, UID: uint32(os.Getuid()), System: d.config.System}
	logind.Follow(ctx, o, func(e logind.Event) {
		if e.All {
			d.agent.LockAll(e.What)
			return
		}
		d.agent.LockUser(e.UID, e.What)
	})
	return nil
}
