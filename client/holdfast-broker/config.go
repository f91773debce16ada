package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"

	"holdfast/client/broker/loopback"
	"holdfast/client/profile"
	"holdfast/internal/dial"
	"holdfast/internal/guard"
)

// config is what the broker is told when it starts. Each value comes from the
// command line, else from the environment, else from the configuration file, else
// it is the default of the mode.
type config struct {
	system      bool
	socket      string
	listen      string // empty for where the proxy listened last
	agentSocket string // empty for the usual places
	state       string
	profiles    string
	policy      string // empty for the built-in policy
	loopbackKey string // auto or file
	logLevel    string
	level       slog.Level

	origins map[string]string // where each value that has been set came from
}

// A setting is one word of the configuration: a flag, and a word of the file.
type setting struct {
	name     string
	usage    string
	variable string // the environment variable that stands in for the flag
	boolean  bool
	set      func(c *config, value string) error
	get      func(c *config) string
}

// settings lists every setting, in the order in which explain shows them.
func settings() []setting {
	return []setting{
		{
			name: "system", boolean: true, usage: "be the machine's broker, rather than a user's own",
			set: func(c *config, v string) (err error) { c.system, err = strconv.ParseBool(v); return err },
			get: func(c *config) string { return strconv.FormatBool(c.system) },
		},
		text("socket", "listen on `path`", "HOLDFAST_BROKER_SOCKET", func(c *config) *string { return &c.socket }, guard.CheckSocketPath),
		text("listen", "have the proxy listen on `address`, 127.0.0.1:PORT", "", func(c *config) *string { return &c.listen }, loopback.CheckAddress),
		text("agent-socket", "ask the agent at `path`", "HOLDFAST_SOCKET", func(c *config) *string { return &c.agentSocket }, guard.CheckSocketPath),
		text("state", "keep the proxy's address and certificate in `directory`", "", func(c *config) *string { return &c.state }, guard.CheckPath),
		text("profiles", "read the profiles in `directory`", "", func(c *config) *string { return &c.profiles }, guard.CheckPath),
		text("policy", "read the policy from `file`", "", func(c *config) *string { return &c.policy }, guard.CheckPath),
		text("loopback-key", "keep the proxy's key sealed, or else in the desktop's keyring (`auto`), or in a file", "", func(c *config) *string { return &c.loopbackKey }, oneOf("auto", "file")),
		{
			name: "log-level", usage: "log `debug`, info, warn or error and what is worse",
			set: func(c *config, v string) error {
				if err := oneOf("debug", "info", "warn", "error")(v); err != nil {
					return err
				}
				c.logLevel = v
				return c.level.UnmarshalText([]byte(v))
			},
			get: func(c *config) string { return c.logLevel },
		},
	}
}

// text makes a setting that is a text and has to pass a check.
func text(name, usage, variable string, field func(*config) *string, check func(string) error) setting {
	return setting{
		name: name, usage: usage, variable: variable,
		set: func(c *config, v string) error {
			if err := check(v); err != nil {
				return err
			}
			*field(c) = v
			return nil
		},
		get: func(c *config) string { return *field(c) },
	}
}

func oneOf(words ...string) func(string) error {
	return func(v string) error {
		for _, w := range words {
			if v == w {
				return nil
			}
		}
		return fmt.Errorf("%.40q is not one of %q", v, words)
	}
}

// flags registers a flag for each setting. The map has what the command line gave,
// once fs has parsed it.
func flags(fs *flag.FlagSet) map[string]string {
	given := map[string]string{}
	note := func(name string) func(string) error {
		return func(v string) error { given[name] = v; return nil }
	}
	fs.Func("config", "read the configuration from `file`", note("config"))
	for _, s := range settings() {
		if s.boolean {
			fs.BoolFunc(s.name, s.usage, note(s.name))
			continue
		}
		fs.Func(s.name, s.usage, note(s.name))
	}
	return given
}

// resolve returns the configuration that the command line, the environment, the
// configuration file and the defaults give together.
func resolve(given map[string]string, getenv func(string) string) (*config, error) {
	c := &config{origins: map[string]string{}}
	file, err := configured(given, getenv)
	if err != nil {
		return nil, err
	}
	for _, s := range settings() {
		value, origin := given[s.name], "--"+s.name
		_, found := given[s.name]
		if !found && s.variable != "" {
			value, origin = getenv(s.variable), s.variable
			found = value != ""
		}
		if !found {
			word, there := file[s.name]
			value, origin, found = word.value, word.where, there
		}
		if !found {
			continue
		}
		if err := s.set(c, value); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", origin, s.name, err)
		}
		c.origins[s.name] = origin
	}
	return c, c.fillIn(getenv)
}

const systemDirectory = "/etc/holdfast"

// configured returns what the configuration file says: the one that --config
// names, which has to be there, else the usual one, which need not.
func configured(given map[string]string, getenv func(string) string) (map[string]word, error) {
	if path, named := given["config"]; named {
		if err := guard.CheckPath(path); err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		return load(path)
	}
	path := filepath.Join(systemDirectory, "broker.yaml")
	if given["system"] != "true" {
		base, err := xdg(getenv, "XDG_CONFIG_HOME", ".config")
		if err != nil {
			return nil, nil // no home, no file; what needs a home says so itself
		}
		path = filepath.Join(base, "holdfast", "broker.yaml")
	}
	words, err := load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return words, err
}

// fillIn gives every setting that has no value the default of the mode, last,
// because a default that nobody needs must not fail.
func (c *config) fillIn(getenv func(string) string) error {
	state, err := "/var/lib/holdfast-broker", error(nil)
	path, agent := "/run/holdfast/broker.sock", "/run/holdfast/agent.sock"
	if !c.system {
		path, agent = dial.Broker().Paths()[0], ""
		if c.state == "" {
			if state, err = xdg(getenv, "XDG_STATE_HOME", ".local/state"); err != nil {
				return fmt.Errorf("state: %w; --state names a directory", err)
			}
			state = filepath.Join(state, "holdfast-broker")
		}
	}
	defaults := map[string]string{
		"socket": path, "agent-socket": agent, "state": state, "profiles": profile.Directory(c.system),
		"policy": c.defaultPolicy(), "loopback-key": "auto", "log-level": "info",
	}
	for _, s := range settings() {
		if c.origins[s.name] != "" {
			continue
		}
		c.origins[s.name] = "default"
		if v := defaults[s.name]; v != "" {
			if err := s.set(c, v); err != nil {
				return fmt.Errorf("%s: %w; --%s gives it", s.name, err, s.name)
			}
		}
	}
	if c.profiles == "" {
		return errors.New("profiles: neither XDG_CONFIG_HOME nor HOME is an absolute path; --profiles names a directory")
	}
	return nil
}

// defaultPolicy is a file of the machine's broker, when there is one. Only a file
// that is certainly not there stands for the built-in policy.
func (c *config) defaultPolicy() string {
	path := filepath.Join(systemDirectory, "broker-policy.yaml")
	if _, err := os.Lstat(path); !c.system || errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return path
}

// xdg returns a base directory of the XDG specification, which has relative paths
// in the variables ignored.
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

// explain writes each setting with its value and where that came from.
func (c *config) explain(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range settings() {
		value := s.get(c)
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t(%s)\n", s.name, value, c.origins[s.name])
	}
	return table.Flush()
}
