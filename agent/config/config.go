// Package config is what the agent is told when it starts: where its state and
// sockets are, which devices it uses, how much it lets wait.
//
// Start at [Flags] and [Resolve]. A value comes from the command line, else from
// the configuration file, else it is the default of the mode that the agent runs
// in: a user's own agent, or with --system the machine's. [Config.Explain] shows
// each value and where it came from.
//
// The file is a YAML mapping, read strictly: unknown and repeated words and
// wrong types are errors with file and line. Its words are the command line's,
// and a few more:
//
//	state: /var/lib/holdfast
//	device: tpm:/dev/tpmrm0
//	limits:
//	  queue-per-peer: 256
//
// The package reads no secret: owner-auth-file is a path, and whoever needs the
// value behind it reads it.
package config

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Config is a complete, checked configuration when it comes from [Resolve]. From
// [Parse] and [Load] it holds what the file says, and zero values for the rest.
// Paths are absolute.
type Config struct {
	System        bool   // the machine's agent, with a uid of its own, rather than a user's
	State         string // directory of the key records
	Socket        string // where programs ask for signatures
	AdminSocket   string // where the machine's keys are managed; empty for a user's agent
	Policy        string // policy file; empty for the built-in policy
	Device        string // tpm:PATH, swtpm:PATH or none
	PIV           bool   // use PIV cards
	PIVProgram    string // the agent's child for them; empty when it is not installed
	PIVRoots      string // PEM file of roots, besides Yubico's, of cards' attestations; empty for none
	Prompt        string // where a person may be asked: auto, desktop, terminal or off
	Pinentry      string // the program that asks; empty to look for one
	RememberPINs  bool   // keep PINs in the desktop's Secret Service
	Audit         string // audit log
	OwnerAuthFile string // file with the TPM's owner authorisation; empty when it has none or may not be used
	Limits        Limits

	file    string            // the configuration file; empty when there is none
	origins map[string]string // where each value that has been set came from, by the setting's name
}

// Limits bounds what callers can take from each other.
type Limits struct {
	QueuePerPeer      int           // requests of one peer that wait for a device
	QueueTotal        int           // requests that wait for a device, of all peers
	ConnectionsPerUID int           // open connections of one uid
	UnlockDefault     time.Duration // how long a PIN opens a key when the caller does not say
	UnlockMax         time.Duration // how long it can at most
}

// File returns the path of the configuration file, or "" when there was none.
func (c *Config) File() string { return c.file }

// Origin returns where the value of a setting, by its name in the file, came
// from: "--state", "HOLDFAST_SOCKET", "/etc/holdfast/agent.yaml:3" or "default".
// It is empty for an unknown setting.
func (c *Config) Origin(name string) string { return c.origins[name] }

// Explain writes each setting with its value and where that came from.
func (c *Config) Explain(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range settings() {
		value := s.get(c)
		if value == "" {
			value = "-"
		}
		// Errors of a tabwriter show in Flush.
		fmt.Fprintf(table, "%s\t%s\t(%s)\n", s.name, value, c.origins[s.name])
	}
	return table.Flush()
}

// set gives a setting its value, and remembers where it came from.
func (c *Config) set(s setting, value, origin string) error {
	if err := s.set(c, value); err != nil {
		return fmt.Errorf("%s: %s: %w", origin, s.name, err)
	}
	c.origins[s.name] = origin
	return nil
}

// fallback gives a setting its value unless something else has given it one.
func (c *Config) fallback(name, value string) error {
	if c.origins[name] != "" {
		return nil
	}
	all := settings()
	i := slices.IndexFunc(all, func(s setting) bool { return s.name == name })
	return c.set(all[i], value, "default")
}

// check looks at what the values say together.
func (c *Config) check() error {
	l := c.Limits
	switch {
	case c.AdminSocket != "" && !c.System:
		return fmt.Errorf("%s: admin-socket: only the machine's agent (--system) has one", c.origins["admin-socket"])
	case c.AdminSocket == c.Socket:
		return fmt.Errorf("%s: admin-socket: it is the other socket's path", c.origins["admin-socket"])
	case l.QueuePerPeer > l.QueueTotal:
		return fmt.Errorf("limits: queue-per-peer %d is more than queue-total %d", l.QueuePerPeer, l.QueueTotal)
	case c.PIV && c.PIVProgram == "":
		return fmt.Errorf("%s: piv: holdfast-piv is not installed beside the agent or in ../libexec/holdfast; piv-program names it", c.origins["piv"])
	case c.RememberPINs && c.System:
		return fmt.Errorf("%s: remember-pins: the machine's agent has no desktop of its own to keep them", c.origins["remember-pins"])
	case l.UnlockDefault > l.UnlockMax:
		return fmt.Errorf("limits: unlock-seconds %v is more than unlock-max-seconds %v", l.UnlockDefault, l.UnlockMax)
	}
	return nil
}
