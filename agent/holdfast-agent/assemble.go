package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"holdfast/agent"
	"holdfast/agent/audit"
	"holdfast/agent/config"
	"holdfast/agent/queue"
	"holdfast/agent/store"
	"holdfast/internal/daemon"
	"holdfast/internal/door"
	"holdfast/internal/keys"
	"holdfast/internal/notify"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
	"holdfast/tpm"
)

// The names that systemd's units give the sockets.
const (
	useSocket   = "agent"
	adminSocket = "admin"
)

// sockets returns the sockets that the agent listens on.
func sockets(c *config.Config) []notify.Socket {
	list := []notify.Socket{{Name: useSocket, Path: c.Socket}}
	if c.AdminSocket != "" {
		list = append(list, notify.Socket{Name: adminSocket, Path: c.AdminSocket, Mode: 0o600})
	}
	return list
}

// service is the agent and what it is made of.
type service struct {
	*daemon.Parts
	config *config.Config
	agent  *agent.Agent
}

// assemble opens everything that the agent needs.
func assemble(c *config.Config, parts *daemon.Parts) (*daemon.Service, error) {
	d := &service{Parts: parts, config: c}
	records, err := store.Open(c.State)
	if err != nil {
		return nil, err
	}
	d.Own(records)
	journal, err := audit.Open(c.Audit)
	if err != nil {
		return nil, err
	}
	d.Own(journal)
	backends, err := d.backends()
	if err != nil {
		return nil, err
	}
	d.agent, err = agent.New(agent.Options{
		Version: d.Version, System: c.System, Store: records, Audit: journal, AuditPath: c.Audit,
		LoadPolicy: d.loadPolicy, Backends: backends, Limits: limits(c.Limits), Notices: d.notices, Person: d.person(), Log: d.Log,
	})
	if err != nil {
		return nil, err
	}
	return &daemon.Service{
		Daemon: d.agent, Keeps: "the old policy and keys stay in force",
		Tasks:  []func(context.Context) error{d.watchDevices, d.followPerson},
		Accept: map[string]func(context.Context, *door.Socket) error{useSocket: d.agent.Serve, adminSocket: d.agent.ServeAdmin},
		Ready:  []any{"version", d.Version, "socket", c.Socket, "device", c.Device},
	}, nil
}

func (d *service) watchDevices(ctx context.Context) error {
	d.agent.WatchDevices(ctx, recovery)
	return nil
}

// spareDescriptors is how many descriptors callers cannot use: files, the device,
// sockets.
const spareDescriptors = 256

// limits adds to the configured limits how many connections the process has
// descriptors for: each takes one for the socket and one for the caller's process.
func limits(l config.Limits) agent.Limits {
	connections := 0
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Cur < 1<<20 {
		connections = max(int(files.Cur)-spareDescriptors, 64) / 2
	}
	return agent.Limits{
		Connections:       connections,
		Queue:             queue.Limits{PerPeer: l.QueuePerPeer, Total: l.QueueTotal},
		ConnectionsPerUID: l.ConnectionsPerUID,
		UnlockDefault:     l.UnlockDefault,
		UnlockMax:         l.UnlockMax,
	}
}

// backends opens the devices, the default one first. Opening sends them nothing.
func (d *service) backends() ([]keys.Backend, error) {
	var list []keys.Backend
	if d.config.Device != "none" {
		auth, err := ownerAuth(d.config.OwnerAuthFile)
		if err != nil {
			return nil, err
		}
		t, err := tpm.Open(tpm.Config{Device: d.config.Device, OwnerAuth: auth})
		if err != nil {
			return nil, err
		}
		d.Own(t)
		list = append(list, t)
	}
	if d.config.PIV {
		p, err := openPIV(d.config, d.Log)
		if err != nil {
			return nil, err
		}
		d.Own(p)
		list = append(list, p)
	}
	return list, nil
}

// ownerAuth reads the TPM's owner authorisation value, without the newline that
// editors leave.
func ownerAuth(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("%s has mode %#o: others can read it", path, info.Mode().Perm())
	}
	if err != nil {
		return nil, fmt.Errorf("owner-auth-file: %w", err)
	}
	auth, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("owner-auth-file: %w", err)
	}
	return bytes.TrimSuffix(auth, []byte("\n")), nil
}

func (d *service) loadPolicy() (*policy.Policy, error) {
	builtIn := policy.UserDefault(uint32(os.Getuid()))
	if d.config.System {
		builtIn = policy.SystemDefault()
	}
	return daemon.LoadPolicy(d.config.Policy, policy.ParseFile, builtIn)
}

// notices returns what status shows besides what the agent itself knows.
func (d *service) notices() (list []agent.Notice) {
	if exact, err := peer.HasPeerPidfd(); err == nil && !exact {
		list = append(list, agent.Notice{Message: "this kernel has no SO_PEERPIDFD: callers' units are found by pid", Hint: "Linux 6.5 and later tell them for certain"})
	}
	for what, directory := range map[string]string{"key records": d.config.State, "audit log": filepath.Dir(d.config.Audit)} {
		if full(directory) {
			list = append(list, agent.Notice{
				Message: fmt.Sprintf("the disk of the %s is full: %s", what, directory),
				Hint:    "make room on it; until then no key is made, and nothing is signed that cannot be recorded", Problem: true,
			})
		}
	}
	return list
}

// full reports whether a disk has no room for another record, which takes one page.
func full(directory string) bool {
	var s unix.Statfs_t
	if err := unix.Statfs(directory, &s); err != nil {
		return false // nothing is known
	}
	return s.Blocks > 0 && s.Bavail*uint64(s.Bsize) < uint64(os.Getpagesize()) || s.Files > 0 && s.Ffree == 0
}
