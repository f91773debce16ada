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

// person is whom the agent asks for PINs. The machine's agent reaches nobody's
// terminal or desktop.
func (d *service) person() agent.Person {
	if d.config.System {
		return nil
	}
	p := prompt.New(prompt.Options{Mode: prompt.Mode(d.config.Prompt), Pinentry: d.config.Pinentry, Log: d.log})
	if d.config.RememberPINs {
		return remember.New(p, keyring.New(), d.log)
	}
	return p
}

// followPerson locks what a person unlocked when they leave: before the machine
// sleeps, and when their screen locks. Without logind it does nothing.
func (d *service) followPerson(ctx context.Context) error {
	o := logind.Options{Log: d.log, UID: uint32(os.Getuid()), System: d.config.System}
	logind.Follow(ctx, o, func(e logind.Event) {
		if e.All {
			d.agent.LockAll(e.What)
			return
		}
		d.agent.LockUser(e.UID, e.What)
	})
	return nil
}
