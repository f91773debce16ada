package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/guard"
)

// kind is how a setting is written in YAML.
type kind string

const (
	text    kind = "!!str"
	integer kind = "!!int"
	boolean kind = "!!bool"
)

// A setting is one word of the configuration. Those of the limits have names
// such as "limits.queue-total" and no flag.
type setting struct {
	name  string
	kind  kind
	usage string // for --help; empty when there is no flag
	set   func(c *Config, value string) error
	get   func(c *Config) string
}

// settings lists every setting, in the order in which Explain shows them.
func settings() []setting {
	return []setting{
		{
			name: "system", kind: boolean, usage: "be the machine's agent, rather than a user's own",
			set: func(c *Config, v string) error { return setBoolean(&c.System, v, "true", "false") },
			get: func(c *Config) string { return strconv.FormatBool(c.System) },
		},
		path("state", "keep key records in `directory`", func(c *Config) *string { return &c.State }, guard.CheckPath),
		path("socket", "listen on `path`", func(c *Config) *string { return &c.Socket }, guard.CheckSocketPath),
		path("admin-socket", "with --system, listen on `path` for key management", func(c *Config) *string { return &c.AdminSocket }, guard.CheckSocketPath),
		path("policy", "read the policy from `file`", func(c *Config) *string { return &c.Policy }, guard.CheckPath),
		path("device", "use TPM `device`: tpm:/dev/tpmrm0, swtpm:PATH or none", func(c *Config) *string { return &c.Device }, device),
		{
			name: "piv", kind: text, usage: "use PIV cards: `on` or off; on when holdfast-piv is installed",
			set: func(c *Config, v string) error { return setBoolean(&c.PIV, v, "on", "off") },
			get: func(c *Config) string { return map[bool]string{true: "on", false: "off"}[c.PIV] },
		},
		path("piv-program", "", func(c *Config) *string { return &c.PIVProgram }, guard.CheckPath),
		path("piv-roots", "", func(c *Config) *string { return &c.PIVRoots }, guard.CheckPath),
		path("prompt", "", func(c *Config) *string { return &c.Prompt }, promptMode),
		path("pinentry", "", func(c *Config) *string { return &c.Pinentry }, guard.CheckPath),
		{
			name: "remember-pins", kind: text,
			set: func(c *Config, v string) error { return setBoolean(&c.RememberPINs, v, "secret-service", "off") },
			get: func(c *Config) string { return map[bool]string{true: "secret-service", false: "off"}[c.RememberPINs] },
		},
		path("audit", "write the audit log to `file`", func(c *Config) *string { return &c.Audit }, guard.CheckPath),
		path("owner-auth-file", "", func(c *Config) *string { return &c.OwnerAuthFile }, guard.CheckPath),
		count("limits.queue-per-peer", func(c *Config) *int { return &c.Limits.QueuePerPeer }),
		count("limits.queue-total", func(c *Config) *int { return &c.Limits.QueueTotal }),
		count("limits.connections-per-uid", func(c *Config) *int { return &c.Limits.ConnectionsPerUID }),
		seconds("limits.unlock-seconds", func(c *Config) *time.Duration { return &c.Limits.UnlockDefault }),
		seconds("limits.unlock-max-seconds", func(c *Config) *time.Duration { return &c.Limits.UnlockMax }),
	}
}

// promptMode checks a word of package prompt.
func promptMode(v string) error {
	switch v {
	case "auto", "desktop", "terminal", "off":
		return nil
	}
	return fmt.Errorf("%.80q is not auto, desktop, terminal or off", v)
}

// path makes a setting that is a text and has to pass a check.
func path(name, usage string, field func(*Config) *string, check func(string) error) setting {
	return setting{
		name: name, kind: text, usage: usage,
		set: func(c *Config, v string) error {
			if err := check(v); err != nil {
				return err
			}
			*field(c) = v
			return nil
		},
		get: func(c *Config) string { return *field(c) },
	}
}

// maxCount is far above any use, and keeps sums of limits from overflowing.
const maxCount = 1 << 20

func count(name string, field func(*Config) *int) setting {
	return setting{
		name: name, kind: integer,
		set: func(c *Config, v string) (err error) {
			*field(c), err = number(v, maxCount)
			return err
		},
		get: func(c *Config) string { return strconv.Itoa(*field(c)) },
	}
}

// maxUnlock is the longest that a PIN may open a key, in seconds.
const maxUnlock = 3600

func seconds(name string, field func(*Config) *time.Duration) setting {
	return setting{
		name: name, kind: integer,
		set: func(c *Config, v string) error {
			n, err := number(v, maxUnlock)
			*field(c) = time.Duration(n) * time.Second
			return err
		},
		get: func(c *Config) string { return strconv.Itoa(int(*field(c) / time.Second)) },
	}
}

// number reads a decimal number from 1 to most.
func number(v string, most int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most || strconv.Itoa(n) != v {
		return 0, fmt.Errorf("%.80q is not a number from 1 to %d", v, most)
	}
	return n, nil
}

func setBoolean(field *bool, v, yes, no string) error {
	if v != yes && v != no {
		return fmt.Errorf("%.80q is neither %s nor %s", v, yes, no)
	}
	*field = v == yes
	return nil
}

// device reads the kind and the path, but does not look whether the device is
// there: one may be absent when the agent starts and come later.
func device(v string) error {
	if v == "none" {
		return nil
	}
	kind, path, _ := strings.Cut(v, ":")
	if kind != "tpm" && kind != "swtpm" {
		return fmt.Errorf("%.80q is not tpm:PATH, swtpm:PATH or none", v)
	}
	return guard.CheckPath(path)
}
