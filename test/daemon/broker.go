package daemon

import (
	"context"
	"os"
	"path/filepath"

	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/dial"
)

// BrokerOptions says how to start a broker. Without an agent it starts, and
// answers that the agent cannot be reached.
type BrokerOptions struct {
	Agent    *Agent             // whose keys sign
	Dir      string             // holds state, socket and profiles; a new private directory when empty
	Profiles []*profile.Profile // written before it starts
	UID      int                // when not 0: the uid and gid that the broker runs under
	Args     []string           // further arguments
	Env      []string           // in addition to the test's own environment
	Wrap     []string           // a command in front of the broker's
	Files    []*os.File         // passed as descriptors 3 and so on
}

// A Broker is a holdfast-broker process.
type Broker struct {
	*process
	Profiles string // the directory of its profiles; SIGHUP after a change is not needed
}

// StartBroker starts a broker and returns when it answers on its socket.
func StartBroker(tb TB, o BrokerOptions) *Broker {
	tb.Helper()
	b := LaunchBroker(tb, o)
	if err := b.Ready(); err != nil {
		tb.Fatalf("%v", err)
	}
	return b
}

// LaunchBroker starts a broker and does not wait for anything.
func LaunchBroker(tb TB, o BrokerOptions) *Broker {
	tb.Helper()
	if o.Dir == "" {
		o.Dir = Dir(tb)
	}
	b := &Broker{process: newProcess(tb, "broker", o.Dir), Profiles: filepath.Join(o.Dir, "profiles")}
	if err := b.prepare(o.UID); err != nil {
		tb.Fatalf("%v", err)
	}
	if err := os.Mkdir(b.Profiles, 0o755); err != nil && !os.IsExist(err) {
		tb.Fatalf("%v", err)
	}
	for _, p := range o.Profiles {
		b.WriteProfile(p)
	}
	agentSocket := filepath.Join(o.Dir, "run", "no-agent.sock")
	if o.Agent != nil {
		agentSocket = o.Agent.Socket
	}
	line := append(o.Wrap, Program(tb, BrokerProgram), "--state", b.State, "--socket", b.Socket, "--agent-socket", agentSocket, "--profiles", b.Profiles)
	b.files = o.Files
	b.start(append(line, o.Args...), o.Env, o.UID)
	return b
}

// WriteProfile adds a profile or replaces it.
func (b *Broker) WriteProfile(p *profile.Profile) {
	b.tb.Helper()
	if err := profile.Write(b.Profiles, p); err != nil {
		b.tb.Fatalf("%v", err)
	}
	path := filepath.Join(b.Profiles, p.Name+".yaml")
	if err := os.Chmod(path, 0o644); err != nil { // a broker of another uid reads it
		b.tb.Fatalf("%v", err)
	}
}

// GetStatus is what the broker answers to GetStatus: its endpoint's address and
// certificate are in it.
func (b *Broker) GetStatus() brokerwire.GetStatusReply {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	conn, err := dial.Broker().Connect(ctx, b.Socket)
	if err != nil {
		b.tb.Fatalf("%v", err)
	}
	defer conn.Close()
	var reply brokerwire.GetStatusReply
	if err := conn.Call(ctx, brokerwire.GetStatus, brokerwire.Empty{}, &reply); err != nil {
		b.tb.Fatalf("GetStatus: %v\n%s", err, b.Log())
	}
	return reply
}
