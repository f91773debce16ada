package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"holdfast/client"
	"holdfast/client/broker"
	"holdfast/client/broker/loopback"
	"holdfast/internal/daemon"
	"holdfast/internal/door"
	"holdfast/internal/guard"
	"holdfast/internal/keyring"
	"holdfast/internal/lockfile"
	"holdfast/internal/notify"
	"holdfast/internal/policy"
)

// agentTimeout is how long the agent may take for a call without a deadline of its
// own.
const agentTimeout = 20 * time.Second

// The names that systemd's units give the sockets.
const (
	brokerSocket   = "broker"
	loopbackSocket = "loopback"
)

// sockets returns the sockets that the broker listens on. It takes over the proxy's
// when systemd passes it, and those that the broker before it gave to systemd to keep.
func sockets(c *config) []notify.Socket {
	return []notify.Socket{
		{Name: brokerSocket, Path: c.socket},
		{Name: loopbackSocket, Loopback: true, Optional: true},
		{Keeps: true, Loopback: true, Optional: true},
	}
}

// assemble opens everything that the broker needs.
func assemble(c *config, parts *daemon.Parts) (*daemon.Service, error) {
	lock, err := lockState(c.state)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	parts.Own(lock)
	if err := makeSocketDirectory(c); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	agent := client.New(&client.Options{Socket: c.agentSocket, Timeout: agentTimeout})
	parts.Own(agent)
	b, err := broker.New(broker.Options{
		Version: parts.Version, System: c.system, Agent: agent, State: c.state, Profiles: c.profiles,
		Listen: c.listen, Passed: parts.Passed[loopbackSocket], Kept: notify.Kept(parts.Passed), Keyring: desktop(c), KeyFile: c.loopbackKey == "file",
		LoadPolicy: c.loadPolicy, Log: parts.Log,
	})
	if err != nil {
		return nil, err
	}
	return &daemon.Service{
		Daemon: b, Keeps: "the old policy stays in force",
		Start:  b.Start,
		Grace:  b.Grace,
		Accept: map[string]func(context.Context, *door.Socket) error{brokerSocket: b.Serve},
		Ready:  []any{"version", parts.Version, "socket", c.socket, "profiles", c.profiles},
	}, nil
}

// desktop returns the keyring of the user's desktop session. The machine's broker
// has none.
func desktop(c *config) loopback.Keyring {
	if c.system {
		return nil
	}
	return keyring.New()
}

// lockState makes the state directory, closed to other uids, and locks it against a
// second broker: two would take each other's port and key.
func lockState(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := guard.CheckPrivate(dir); err != nil {
		return nil, err
	}
	return lockfile.Take(filepath.Join(dir, "lock"))
}

// makeSocketDirectory makes a user's own directory when it is missing. A package or a
// unit makes the machine's.
func makeSocketDirectory(c *config) error {
	if c.system {
		return nil
	}
	if err := os.Mkdir(filepath.Dir(c.socket), 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func (c *config) loadPolicy() (*policy.Policy, error) {
	builtIn := policy.BrokerUserDefault(uint32(os.Getuid()))
	if c.system {
		builtIn = policy.BrokerSystemDefault()
	}
	return daemon.LoadPolicy(c.policy, policy.ParseBrokerFile, builtIn)
}
