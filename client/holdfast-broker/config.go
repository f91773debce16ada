package main

import (
	"errors"
	"log/slog"

	"holdfast/client/broker/loopback"
	"holdfast/client/profile"
	"holdfast/internal/daemon"
	"holdfast/internal/guard"
)

// config is the broker's settings.
type config struct {
	*daemon.Settings

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
}

// newConfig returns settings without values. The words are in configuration files:
// they may be added to, not changed.
func newConfig() *config {
	c := &config{}
	setLevel := func() error { return c.level.UnmarshalText([]byte(c.logLevel)) }
	c.Settings = daemon.NewSettings("broker.yaml", setLevel,
		daemon.Setting{
			Name: "system", Value: daemon.Bool(&c.system), Default: daemon.Always("false"),
			Usage: "be the machine's broker, rather than a user's own",
		},
		daemon.Setting{
			Name: "socket", Value: daemon.Text(&c.socket, guard.CheckSocketPath), Usage: "listen on `path`", Variable: "HOLDFAST_BROKER_SOCKET",
			Default: daemon.InRuntime("holdfast/broker.sock"), Machine: daemon.Always("/run/holdfast/broker.sock"),
		},
		daemon.Setting{
			Name: "listen", Value: daemon.Text(&c.listen, loopback.CheckAddress),
			Usage: "have the proxy listen on `address`, 127.0.0.1:PORT",
		},
		daemon.Setting{
			Name: "agent-socket", Value: daemon.Text(&c.agentSocket, guard.CheckSocketPath), Usage: "ask the agent at `path`",
			Variable: "HOLDFAST_SOCKET", Machine: daemon.Always("/run/holdfast/agent.sock"),
		},
		daemon.Setting{
			Name: "state", Value: daemon.Text(&c.state, guard.CheckPath), Usage: "keep the proxy's address and certificate in `directory`",
			Default: daemon.InState("holdfast-broker"), Machine: daemon.Always("/var/lib/holdfast-broker"),
		},
		daemon.Setting{
			Name: "profiles", Value: daemon.Text(&c.profiles, guard.CheckPath), Usage: "read the profiles in `directory`",
			Default: profiles(false), Machine: profiles(true),
		},
		daemon.Setting{
			Name: "policy", Value: daemon.Text(&c.policy, guard.CheckPath), Usage: "read the policy from `file`",
			Machine: daemon.SystemFile("broker-policy.yaml"),
		},
		daemon.Setting{
			Name: "loopback-key", Value: daemon.Text(&c.loopbackKey, daemon.OneOf("auto", "file")), Default: daemon.Always("auto"),
			Usage: "keep the proxy's key sealed, or else in the desktop's keyring (`auto`), or in a file",
		},
		daemon.Setting{
			Name: "log-level", Value: daemon.Text(&c.logLevel, daemon.OneOf("debug", "info", "warn", "error")), Default: daemon.Always("info"),
			Usage: "log `debug`, info, warn or error and what is worse",
		},
	)
	return c
}

// profiles is the default of the directory that every program of holdfast reads.
func profiles(system bool) daemon.Default {
	return func(daemon.Environment) (string, error) {
		directory := profile.Directory(system)
		if directory == "" {
			return "", errors.New("neither XDG_CONFIG_HOME nor HOME is an absolute path")
		}
		return directory, nil
	}
}
