package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"holdfast/client"
	"holdfast/client/broker"
	"holdfast/client/broker/loopback"
	"holdfast/internal/door"
	"holdfast/internal/guard"
	"holdfast/internal/keyring"
	"holdfast/internal/notify"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

// agentPatience is how long the agent may take for what has no deadline of its own.
const agentPatience = 20 * time.Second

// service is the broker and what it is made of.
type service struct {
	config *config
	log    *slog.Logger
	socket *door.Socket
	broker *broker.Broker
	opened []io.Closer // closed last to first
}

// The names that systemd's units give the sockets.
const (
	brokerSocket   = "broker"
	loopbackSocket = "loopback"
)

// assemble opens everything that the broker needs, the socket last: nobody is kept
// waiting by a broker that then cannot start. On an error nothing stays open.
func assemble(c *config, log *slog.Logger) (_ *service, err error) {
	d := &service{config: c, log: log}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	mode := fs.FileMode(0o600)
	if c.system {
		mode = 0o666 // everybody may connect; policy decides who is heard
	}
	passed, err := notify.All(
		notify.Socket{Name: brokerSocket, Path: c.socket, Mode: mode},
		notify.Socket{Name: loopbackSocket, Loopback: true, Optional: true},
	)
	if err != nil {
		return nil, err
	}
	for _, l := range passed {
		d.opened = append(d.opened, l)
	}
	lock, err := lockState(c.state)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	d.opened = append(d.opened, lock)
	agent := client.New(&client.Options{Socket: c.agentSocket, Timeout: agentPatience})
	d.opened = append(d.opened, agent)
	d.broker, err = broker.New(broker.Options{
		Version: fullVersion(), System: c.system, Agent: agent, State: c.state, Profiles: c.profiles,
		Listen: c.listen, Passed: passed[loopbackSocket], Keyring: desktop(c), KeyFile: c.loopbackKey == "file",
		LoadPolicy: d.loadPolicy, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return d, d.listen(passed[brokerSocket], mode)
}

// desktop returns the keyring of the person whose broker this is. The machine's
// broker is nobody's, and has no session with one.
func desktop(c *config) loopback.Keyring {
	if c.system {
		return nil
	}
	return keyring.New()
}

// lockState makes the state directory, which is this uid's alone, and keeps another
// broker out of it: two would take each other's port and key.
func lockState(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := guard.CheckPrivate(dir); err != nil {
		return nil, err
	}
	return door.Lock(filepath.Join(dir, "lock"))
}

// listen makes the socket unless systemd has passed it. A user's own directory is
// made when it is missing; the machine's is the package's to make.
func (d *service) listen(passed net.Listener, mode fs.FileMode) error {
	if l, ok := passed.(*net.UnixListener); ok {
		d.socket = door.Activated(l)
		return nil
	}
	path := d.config.socket
	if !d.config.system {
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("socket: %w", err)
		}
	}
	if err := guard.CheckSocketDirectory(path, d.config.system); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	s, err := door.Listen(path, mode)
	if err != nil {
		return err
	}
	d.socket = s
	d.opened = append(d.opened, s)
	return nil
}

// loadPolicy reads the policy, and refuses one that this kernel cannot enforce.
func (d *service) loadPolicy() (*policy.Policy, error) {
	if d.config.policy == "" {
		if d.config.system {
			return policy.BrokerSystemDefault(), nil
		}
		return policy.BrokerUserDefault(uint32(os.Getuid())), nil
	}
	if err := guard.CheckFile(d.config.policy); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	p, err := policy.ParseBrokerFile(d.config.policy)
	if err != nil {
		return nil, err
	}
	exact, err := peer.HasPeerPidfd()
	if err == nil {
		err = p.Enforceable(exact)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (d *service) close() error {
	var errs []error
	for i := len(d.opened) - 1; i >= 0; i-- {
		if err := d.opened[i].Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
