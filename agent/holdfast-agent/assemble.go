package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"holdfast/agent"
	"holdfast/agent/audit"
	"holdfast/agent/config"
	"holdfast/agent/queue"
	"holdfast/agent/store"
	"holdfast/internal/door"
	"holdfast/internal/guard"
	"holdfast/internal/keys"
	"holdfast/internal/notify"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
	"holdfast/tpm"
)

// configure reads the command line and what it leads to. done is set when the
// command line asked for nothing but an answer.
func configure(flags *flag.FlagSet, args []string, stdout io.Writer) (c *config.Config, done bool, err error) {
	config.Flags(flags)
	showVersion := flags.Bool("version", false, "print the version and exit")
	explain := flags.Bool("explain", false, "print the configuration and where each value comes from, and exit")
	if err := flags.Parse(args); err != nil {
		return nil, false, err
	}
	if flags.NArg() > 0 {
		return nil, false, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *showVersion {
		_, err := fmt.Fprintln(stdout, "holdfast-agent", fullVersion(), "backends: tpm piv")
		return nil, true, err
	}
	if c, err = config.Resolve(flags, os.Getenv); err != nil {
		return nil, false, err
	}
	if *explain {
		return c, true, c.Explain(stdout)
	}
	return c, false, nil
}

// service is the agent and what it is made of.
type service struct {
	config  *config.Config
	log     *slog.Logger
	sockets map[string]*door.Socket // by name
	agent   *agent.Agent
	opened  []io.Closer // closed last to first
}

// assemble opens everything that the agent needs, the sockets last: nobody is
// kept waiting by an agent that then cannot start. On an error nothing stays open.
func assemble(c *config.Config, log *slog.Logger) (_ *service, err error) {
	d := &service{config: c, log: log, sockets: map[string]*door.Socket{}}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	passed, err := d.activated()
	if err != nil {
		return nil, err
	}
	records, err := store.Open(c.State)
	if err != nil {
		return nil, err
	}
	d.opened = append(d.opened, records)
	log.Debug("state", "directory", c.State)
	journal, err := audit.Open(c.Audit)
	if err != nil {
		return nil, err
	}
	d.opened = append(d.opened, journal)
	backends, err := d.backends()
	if err != nil {
		return nil, err
	}
	d.agent, err = agent.New(agent.Options{
		Version: fullVersion(), System: c.System, Store: records, Audit: journal, AuditPath: c.Audit,
		LoadPolicy: d.loadPolicy, Backends: backends, Limits: limits(c.Limits), Notices: d.notices, Person: d.person(), Log: log,
	})
	if err != nil {
		return nil, err
	}
	return d, d.listen(passed)
}

// spareDescriptors are not for callers: files, the device, sockets.
const spareDescriptors = 256

// limits adds to the configured ones how many connections the process has
// descriptors for: each takes one for the socket and one for the caller's process.
func limits(l config.Limits) agent.Limits {
	connections := 0
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Cur < 1<<20 {
		connections = max(int(files.Cur)-spareDescriptors, 64) / 2
	}
	return agent.Limits{
		Connections:        connections,
		Queue:              queue.Limits{PerPeer: l.QueuePerPeer, Total: l.QueueTotal},
		ConnectionsPerPeer: l.ConnectionsPerUID,
		UnlockDefault:      l.UnlockDefault,
		UnlockMax:          l.UnlockMax,
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
		d.opened = append(d.opened, t)
		list = append(list, t)
	}
	if d.config.PIV {
		p, err := openPIV(d.config, d.log)
		if err != nil {
			return nil, err
		}
		d.opened = append(d.opened, p)
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

// loadPolicy reads the policy, and refuses one that this kernel cannot enforce.
func (d *service) loadPolicy() (*policy.Policy, error) {
	if d.config.Policy == "" {
		if d.config.System {
			return policy.SystemDefault(), nil
		}
		return policy.UserDefault(uint32(os.Getuid())), nil
	}
	if err := guard.CheckFile(d.config.Policy); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	p, err := policy.ParseFile(d.config.Policy)
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

// notices is what status shows besides what the agent itself knows.
func (d *service) notices() []agent.Notice {
	var list []agent.Notice
	if exact, err := peer.HasPeerPidfd(); err == nil && !exact {
		list = append(list, agent.Notice{Message: "this kernel has no SO_PEERPIDFD: callers' units are found by pid", Hint: "Linux 6.5 and later tell them for certain"})
	}
	return list
}

// The names and permissions of the sockets. In system mode everybody may connect
// to the first; policy decides who is heard.
const (
	useSocket   = "agent"
	adminSocket = "admin"
)

func (d *service) wanted() []notify.Socket {
	mode := fs.FileMode(0o600)
	if d.config.System {
		mode = 0o666
	}
	list := []notify.Socket{{Name: useSocket, Path: d.config.Socket, Mode: mode}}
	if d.config.AdminSocket != "" {
		list = append(list, notify.Socket{Name: adminSocket, Path: d.config.AdminSocket, Mode: 0o600})
	}
	return list
}

// activated takes over the sockets that systemd passed, before any file is opened.
func (d *service) activated() (map[string]*door.Socket, error) {
	passed, err := notify.Listeners(d.wanted()...)
	if err != nil {
		return nil, err
	}
	sockets := map[string]*door.Socket{}
	for name, l := range passed {
		s := door.Activated(l)
		sockets[name] = s
		d.opened = append(d.opened, s)
	}
	return sockets, nil
}

// listen makes the sockets that systemd did not pass.
func (d *service) listen(passed map[string]*door.Socket) error {
	for _, w := range d.wanted() {
		s := passed[w.Name]
		if s == nil {
			if err := guard.CheckSocketDirectory(w.Path, d.config.System); err != nil {
				return fmt.Errorf("socket: %w", err)
			}
			var err error
			if s, err = door.Listen(w.Path, w.Mode); err != nil {
				return err
			}
			d.opened = append(d.opened, s)
		}
		d.sockets[w.Name] = s
	}
	return nil
}

func (d *service) close() error {
	var errs []error
	for i := len(d.opened) - 1; i >= 0; i-- {
		errs = append(errs, d.opened[i].Close())
	}
	return errors.Join(errs...)
}
