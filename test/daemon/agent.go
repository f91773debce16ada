package daemon

import (
	"os"
	"path/filepath"
	"time"
)

// testTimeout bounds every wait. An agent answers within 50 ms on an idle machine;
// the rest is for a loaded one.
const testTimeout = time.Minute

// Options says how to start an agent. The zero value is a user's agent without
// a device.
type Options struct {
	Dir    string   // holds state and socket; a new private directory when empty
	Device string   // "none" when empty
	Args   []string // further arguments
	Env    []string // in addition to the test's own environment
	Wrap   []string // a command in front of the agent's
	UID    int      // when not 0: the uid and gid that the agent runs under
	Cards  *Cards   // uses cards; nil: it does not
	Config string   // further lines of its configuration file
}

// Cards says how an agent finds cards.
type Cards struct {
	Socket string // of pcscd
	Roots  string // file with the roots of the cards' attestations, PEM
}

// An Agent is a holdfast-agent process.
type Agent struct{ *process }

// Start starts an agent and returns when it answers on its socket.
func Start(tb TB, o Options) *Agent {
	tb.Helper()
	a := Launch(tb, o)
	if err := a.Ready(); err != nil {
		tb.Fatalf("%v", err)
	}
	return a
}

// Launch starts an agent and does not wait for anything.
func Launch(tb TB, o Options) *Agent {
	tb.Helper()
	if o.Dir == "" {
		o.Dir = Dir(tb)
	}
	if o.Device == "" {
		o.Device = "none"
	}
	a := &Agent{newProcess(tb, "agent", o.Dir)}
	if err := a.prepare(o.UID); err != nil {
		tb.Fatalf("%v", err)
	}
	line := append(o.Wrap, Program(tb, AgentProgram), "--state", a.State, "--socket", a.Socket, "--device", o.Device, "--piv", "off")
	if o.Cards != nil {
		line[len(line)-1] = "on"
		o.Config += "piv-program: " + Program(tb, PIVProgram) + "\npiv-roots: " + o.Cards.Roots + "\n"
		o.Env = append(o.Env, "PCSCLITE_CSOCK_NAME="+o.Cards.Socket)
	}
	if o.Config != "" {
		path := filepath.Join(o.Dir, "agent.yaml")
		if err := os.WriteFile(path, []byte(o.Config), 0o644); err != nil {
			tb.Fatalf("%v", err)
		}
		line = append(line, "--config", path)
	}
	a.start(append(line, o.Args...), o.Env, o.UID)
	return a
}
