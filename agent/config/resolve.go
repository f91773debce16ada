package config

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"holdfast/internal/guard"
)

// socketVariable stands in for --socket in every program of holdfast.
const socketVariable = "HOLDFAST_SOCKET"

const systemDirectory = "/etc/holdfast"

// Flags registers the agent's flags, for [Resolve] to look at once fs has parsed
// the command line.
func Flags(fs *flag.FlagSet) {
	fs.String("config", "", "read the configuration from `file`")
	for _, s := range settings() {
		switch {
		case s.usage == "":
		case s.kind == boolean:
			fs.Bool(s.name, false, s.usage)
		default:
			fs.String(s.name, "", s.usage)
		}
	}
}

// Resolve returns the configuration that the flags, the environment (asked
// through getenv, which is os.Getenv outside tests), the configuration file and
// the defaults give together. The file is the one that --config names, else
// /etc/holdfast/agent.yaml with --system or else
// ${XDG_CONFIG_HOME:-~/.config}/holdfast/agent.yaml, when that exists.
//
// The defaults of a user's agent are ${XDG_STATE_HOME:-~/.local/state}/holdfast
// and $XDG_RUNTIME_DIR/holdfast/agent.sock; without XDG_RUNTIME_DIR, /run/user/UID
// takes its place if it is the user's and closed to others. Those of the machine's
// agent are /var/lib/holdfast, /run/holdfast/agent.sock and admin.sock, and
// /etc/holdfast/policy.yaml when it exists.
func Resolve(flags *flag.FlagSet, getenv func(string) string) (*Config, error) {
	given := map[string]string{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = f.Value.String() })

	c, err := configured(given, getenv)
	if err != nil {
		return nil, err
	}
	for _, s := range settings() {
		value, found := given[s.name]
		origin := "--" + s.name
		if s.name == "socket" && !found {
			value, origin = getenv(socketVariable), socketVariable
			found = value != ""
		}
		if !found {
			continue
		}
		if err := c.set(s, value, origin); err != nil {
			return nil, err
		}
	}
	if err := c.fillIn(getenv); err != nil {
		return nil, err
	}
	return c, c.check()
}

// configured returns what the configuration file says. A file that is named has
// to be there; the usual one does not, but one that is there and cannot be read
// is an error, since the agent would otherwise run with other limits than meant.
func configured(given map[string]string, getenv func(string) string) (*Config, error) {
	if path, found := given["config"]; found {
		if err := guard.CheckPath(path); err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		return Load(path)
	}
	path := systemDirectory + "/agent.yaml"
	if given["system"] != "true" {
		directory, err := xdg(getenv, "XDG_CONFIG_HOME", ".config")
		if err != nil {
			return empty(), nil // no home, no file; what needs a home says so itself
		}
		path = filepath.Join(directory, "holdfast", "agent.yaml")
	}
	c, err := Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return empty(), nil
	}
	return c, err
}

func empty() *Config { return &Config{origins: map[string]string{}} }

// fillIn gives every setting that has no value the default of the mode. It comes
// last because flags and file decide the mode, and because a default that nobody
// needs must not fail: an agent with --state and --socket wants no HOME.
func (c *Config) fillIn(getenv func(string) string) error {
	if err := c.fallback("system", "false"); err != nil {
		return err
	}
	places := c.fillInUser
	if c.System {
		places = c.fillInSystem
	}
	if err := places(getenv); err != nil {
		return err
	}
	if err := c.fillInPIV(); err != nil {
		return err
	}
	prompt := "auto"
	if c.System { // it reaches nobody's terminal or desktop
		prompt = "off"
	}
	for _, d := range [][2]string{
		{"device", "tpm:/dev/tpmrm0"},
		{"prompt", prompt},
		{"remember-pins", "off"},
		{"audit", filepath.Join(c.State, "audit.log")},
		{"limits.queue-per-peer", "256"},
		{"limits.queue-total", "1024"},
		{"limits.connections-per-uid", "320"},
		{"limits.unlock-seconds", "900"},
		{"limits.unlock-max-seconds", "3600"},
	} {
		if err := c.fallback(d[0], d[1]); err != nil {
			return err
		}
	}
	for _, s := range settings() { // what may stay without a value
		if c.origins[s.name] == "" {
			c.origins[s.name] = "default"
		}
	}
	return nil
}

func (c *Config) fillInSystem(func(string) string) error {
	err := errors.Join(
		c.fallback("state", "/var/lib/holdfast"),
		c.fallback("socket", "/run/holdfast/agent.sock"),
		c.fallback("admin-socket", "/run/holdfast/admin.sock"),
	)
	policy := systemDirectory + "/policy.yaml"
	// Only a file that is certainly not there stands for the built-in policy.
	if _, serr := os.Lstat(policy); err == nil && !errors.Is(serr, fs.ErrNotExist) {
		err = c.fallback("policy", policy)
	}
	return err
}

func (c *Config) fillInUser(getenv func(string) string) error {
	if c.origins["state"] == "" {
		directory, err := xdg(getenv, "XDG_STATE_HOME", ".local/state")
		if err != nil {
			return fmt.Errorf("state: %w; --state names a directory", err)
		}
		if err := c.fallback("state", filepath.Join(directory, "holdfast")); err != nil {
			return err
		}
	}
	if c.origins["socket"] == "" {
		directory, err := runtimeDirectory(getenv)
		if err != nil {
			return fmt.Errorf("socket: %w; --socket names a path", err)
		}
		return c.fallback("socket", filepath.Join(directory, "holdfast", "agent.sock"))
	}
	return nil
}

// xdg returns a base directory of the XDG specification, which has relative
// paths in the variables ignored.
func xdg(getenv func(string) string, variable, belowHome string) (string, error) {
	if directory := getenv(variable); filepath.IsAbs(directory) {
		return filepath.Clean(directory), nil
	}
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("neither %s nor HOME is an absolute path", variable)
	}
	return filepath.Join(home, belowHome), nil
}

// runtimeDirectory never falls back to a directory that others can write: a
// socket there could be somebody else's (systemd's pam_systemd sets the variable
// and makes the directory in every session, so going without is rare).
func runtimeDirectory(getenv func(string) string) (string, error) {
	if directory := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(directory) {
		return filepath.Clean(directory), nil
	}
	directory := "/run/user/" + strconv.Itoa(os.Geteuid())
	if err := guard.CheckPrivate(directory); err != nil {
		return "", fmt.Errorf("XDG_RUNTIME_DIR is not set, and %w", err)
	}
	return directory, nil
}
