// Package config holds the settings of the agent: where its state and sockets are,
// which devices it uses, how much may wait. Start at [New]; package daemon reads the
// command line, the environment and the settings file.
//
// The package reads no secret: owner-auth-file is a path, and holdfast-agent reads
// the value behind it.
package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/internal/daemon"
	"holdfast/internal/guard"
)

// Config is the agent's settings. They have their values, checked, after
// [daemon.Settings.Resolve]. Paths are absolute.
type Config struct {
	*daemon.Settings

	System        bool   // the machine's agent, with a uid of its own, rather than a user's
	State         string // directory of the key records
	Socket        string // where programs ask for signatures
	AdminSocket   string // where the machine's keys are managed; empty for a user's agent
	Policy        string // policy file; empty for the built-in policy
	Device        string // tpm:PATH, swtpm:PATH or none
	PIV           bool   // use PIV cards
	PIVProgram    string // the agent's child for them; empty when it is not installed
	PIVRoots      string // PEM file of roots, besides Yubico's, of cards' attestations; empty for none
	Prompt        string // where the agent may prompt a user: auto, desktop, terminal or off
	Pinentry      string // the program that prompts; empty to look for one
	RememberPINs  bool   // keep PINs in the desktop's Secret Service
	Audit         string // audit log
	OwnerAuthFile string // file with the TPM's owner authorisation; empty when it has none or may not be used
	Limits        Limits
}

// Limits bounds what callers can take from each other.
type Limits struct {
	QueuePerPeer      int           // requests of one peer that wait for a device
	QueueTotal        int           // requests that wait for a device, of all peers
	ConnectionsPerUID int           // open connections of one uid
	UnlockDefault     time.Duration // how long a PIN unlocks a key by default
	UnlockMax         time.Duration // the longest that a caller may ask for
}

const (
	maxCount  = 1 << 20 // far above any use, and keeps sums of limits from overflowing
	maxUnlock = 3600    // the longest that a PIN may unlock a key, in seconds
)

// New returns settings without values.
func New() *Config {
	c := &Config{}
	c.Settings = daemon.NewSettings("agent.yaml", c.check, c.rows()...)
	return c
}

// rows is the table of settings. The words are in configuration files: they may be
// added to, not changed.
func (c *Config) rows() []daemon.Setting {
	l := &c.Limits
	return []daemon.Setting{
		{
			Name: "system", Value: daemon.Bool(&c.System), Default: daemon.Always("false"),
			Usage: "be the machine's agent, rather than a user's own",
		},
		{
			Name: "state", Value: daemon.Text(&c.State, guard.CheckPath), Usage: "keep key records in `directory`",
			Default: daemon.InState("holdfast"), Machine: daemon.Always("/var/lib/holdfast"),
		},
		{
			Name: "socket", Value: daemon.Text(&c.Socket, guard.CheckSocketPath), Usage: "listen on `path`", Variable: "HOLDFAST_SOCKET",
			Default: daemon.InRuntime("holdfast/agent.sock"), Machine: daemon.Always("/run/holdfast/agent.sock"),
		},
		{
			Name: "admin-socket", Value: daemon.Text(&c.AdminSocket, guard.CheckSocketPath),
			Usage:   "with --system, listen on `path` for key management",
			Machine: daemon.Always("/run/holdfast/admin.sock"),
		},
		{
			Name: "policy", Value: daemon.Text(&c.Policy, guard.CheckPath), Usage: "read the policy from `file`",
			Machine: daemon.SystemFile("policy.yaml"),
		},
		{
			Name: "device", Value: daemon.Text(&c.Device, checkDevice), Default: daemon.Always("tpm:/dev/tpmrm0"),
			Usage: "use TPM `device`: tpm:/dev/tpmrm0, swtpm:PATH or none",
		},
		{
			Name: "piv", Value: daemon.Switch(&c.PIV, "on", "off"), Default: c.whetherPIV,
			Usage: "use PIV cards: `on` or off; on when holdfast-piv is installed",
		},
		{Name: "piv-program", Value: daemon.Text(&c.PIVProgram, guard.CheckPath), Default: installedPIV},
		{Name: "piv-roots", Value: daemon.Text(&c.PIVRoots, guard.CheckPath)},
		{
			Name: "prompt", Value: daemon.Text(&c.Prompt, daemon.OneOf("auto", "desktop", "terminal", "off")),
			Default: daemon.Always("auto"), Machine: daemon.Always("off"), // the machine's agent has no terminal or desktop
		},
		{Name: "pinentry", Value: daemon.Text(&c.Pinentry, guard.CheckPath)},
		{Name: "remember-pins", Value: daemon.Switch(&c.RememberPINs, "secret-service", "off"), Default: daemon.Always("off")},
		{
			Name: "audit", Value: daemon.Text(&c.Audit, guard.CheckPath), Usage: "write the audit log to `file`",
			Default: func(daemon.Environment) (string, error) { return filepath.Join(c.State, "audit.log"), nil },
		},
		{Name: "owner-auth-file", Value: daemon.Text(&c.OwnerAuthFile, guard.CheckPath)},
		{Name: "limits.queue-per-peer", Value: daemon.Number(&l.QueuePerPeer, maxCount), Default: daemon.Always("256")},
		{Name: "limits.queue-total", Value: daemon.Number(&l.QueueTotal, maxCount), Default: daemon.Always("1024")},
		{Name: "limits.connections-per-uid", Value: daemon.Number(&l.ConnectionsPerUID, maxCount), Default: daemon.Always("320")},
		{Name: "limits.unlock-seconds", Value: daemon.Seconds(&l.UnlockDefault, maxUnlock), Default: daemon.Always("900")},
		{Name: "limits.unlock-max-seconds", Value: daemon.Seconds(&l.UnlockMax, maxUnlock), Default: daemon.Always("3600")},
	}
}

// check compares the values with each other.
func (c *Config) check() error {
	l := c.Limits
	switch {
	case c.AdminSocket != "" && !c.System:
		return fmt.Errorf("%s: admin-socket: only the machine's agent (--system) has one", c.Origin("admin-socket"))
	case c.AdminSocket == c.Socket:
		return fmt.Errorf("%s: admin-socket: it is the other socket's path", c.Origin("admin-socket"))
	case l.QueuePerPeer > l.QueueTotal:
		return fmt.Errorf("limits: queue-per-peer %d is more than queue-total %d", l.QueuePerPeer, l.QueueTotal)
	case c.PIV && c.PIVProgram == "":
		return fmt.Errorf("%s: piv: holdfast-piv is not installed beside the agent or in ../libexec/holdfast; piv-program names it", c.Origin("piv"))
	case c.RememberPINs && c.System:
		return fmt.Errorf("%s: remember-pins: the machine's agent has no desktop of its own to keep them", c.Origin("remember-pins"))
	case l.UnlockDefault > l.UnlockMax:
		return fmt.Errorf("limits: unlock-seconds %v is more than unlock-max-seconds %v", l.UnlockDefault, l.UnlockMax)
	}
	return nil
}

// checkDevice checks the kind and the path, but not that the device is there: it
// may be absent when the agent starts and come later.
func checkDevice(v string) error {
	if v == "none" {
		return nil
	}
	kind, path, _ := strings.Cut(v, ":")
	if kind != "tpm" && kind != "swtpm" {
		return fmt.Errorf("%.80q is not tpm:PATH, swtpm:PATH or none", v)
	}
	return guard.CheckPath(path)
}

// whetherPIV is the default of "piv": on when the agent has its child for cards.
func (c *Config) whetherPIV(e daemon.Environment) (string, error) {
	program, err := installedPIV(e)
	if c.PIVProgram == "" && program == "" {
		return "off", err
	}
	return "on", err
}

// installedPIV is the default of "piv-program". It does not look in PATH: the process
// that sets the variable would choose the program that sees the PINs.
func installedPIV(daemon.Environment) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil // nothing is known to be installed
	}
	return besideProgram(self), nil
}

// besideProgram returns the path of holdfast-piv in the directory of the agent's
// program, or in the place where packages install it, or "".
func besideProgram(agent string) string {
	directory := filepath.Dir(agent)
	for _, path := range []string{
		filepath.Join(directory, "holdfast-piv"),
		filepath.Join(directory, "..", "libexec", "holdfast", "holdfast-piv"),
	} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
