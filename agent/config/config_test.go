package config

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/guard"
)

// resolve resolves a command line in an environment that is empty but for env.
func resolve(t *testing.T, env map[string]string, args ...string) (*Config, error) {
	t.Helper()
	flags := flag.NewFlagSet("holdfast-agent", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	c := New()
	c.Flags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c, c.Resolve(flags, func(name string) string { return env[name] })
}

func mustResolve(t *testing.T, env map[string]string, args ...string) *Config {
	t.Helper()
	c, err := resolve(t, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// home is the environment of a user without configuration.
func home(t *testing.T) map[string]string {
	t.Helper()
	directory := t.TempDir()
	return map[string]string{"HOME": directory, "XDG_RUNTIME_DIR": "/run/user/1000"}
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// fields are the exported values of a Config, which can be compared.
type fields struct {
	System                                                           bool
	State, Socket, AdminSocket, Policy, Device, Audit, OwnerAuthFile string
	PIV                                                              bool
	Limits                                                           Limits
}

func fieldsOf(c *Config) fields {
	return fields{c.System, c.State, c.Socket, c.AdminSocket, c.Policy, c.Device, c.Audit, c.OwnerAuthFile, c.PIV, c.Limits}
}

func defaultLimits() Limits {
	return Limits{
		QueuePerPeer: 256, QueueTotal: 1024, ConnectionsPerUID: 320,
		UnlockDefault: 15 * time.Minute, UnlockMax: time.Hour,
	}
}

func TestUserDefaults(t *testing.T) {
	env := home(t)
	state := env["HOME"] + "/.local/state/holdfast"
	want := fields{
		State: state, Socket: "/run/user/1000/holdfast/agent.sock", Device: "tpm:/dev/tpmrm0",
		Audit: state + "/audit.log", Limits: defaultLimits(),
	}
	if got := fieldsOf(mustResolve(t, env)); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	env["XDG_STATE_HOME"] = "/var/tmp/state"
	want.State, want.Audit = "/var/tmp/state/holdfast", "/var/tmp/state/holdfast/audit.log"
	if got := fieldsOf(mustResolve(t, env)); got != want {
		t.Errorf("XDG_STATE_HOME: got %+v, want %+v", got, want)
	}
	env["XDG_STATE_HOME"] = "relative"
	if got := mustResolve(t, env).State; got != state {
		t.Errorf("relative XDG_STATE_HOME: got %s, want %s", got, state)
	}
}

func TestSystemDefaults(t *testing.T) {
	c := mustResolve(t, nil, "--system")
	want := fields{
		System: true, State: "/var/lib/holdfast", Socket: "/run/holdfast/agent.sock", AdminSocket: "/run/holdfast/admin.sock",
		Device: "tpm:/dev/tpmrm0", Audit: "/var/lib/holdfast/audit.log", Limits: defaultLimits(),
	}
	if _, err := os.Stat("/etc/holdfast/policy.yaml"); err == nil {
		want.Policy = "/etc/holdfast/policy.yaml"
	}
	if got := fieldsOf(c); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSocketFromTheEnvironment(t *testing.T) {
	env := home(t)
	env["HOLDFAST_SOCKET"] = "/env/s"
	if c := mustResolve(t, env); c.Socket != "/env/s" || c.Origin("socket") != "HOLDFAST_SOCKET" {
		t.Errorf("got %s from %s", c.Socket, c.Origin("socket"))
	}
}

func TestResolveRejects(t *testing.T) {
	long := "/" + strings.Repeat("d", guard.MaxSocketPath)
	cases := []struct {
		about string
		args  []string
		want  string
	}{
		{"abstract socket", []string{"--socket", "@x"}, `--socket: socket: "@x" is not an absolute path`},
		{"socket with a zero byte", []string{"--socket", "/a\x00b"}, "--socket: socket: "},
		{"long socket", []string{"--socket", long}, `--socket: socket: "` + long + `" has 108 bytes, and the path of a socket at most 107`},
		{"long admin socket", []string{"--system", "--admin-socket", long}, "--admin-socket: admin-socket: "},
		{"admin socket of a user", []string{"--admin-socket", "/a"}, "--admin-socket: admin-socket: only the machine's agent"},
		{"one path for both", []string{"--system", "--socket", "/a", "--admin-socket", "/a"}, "--admin-socket: admin-socket: it is the other"},
		{"unknown device", []string{"--device", "/dev/tpmrm0"}, `--device: device: "/dev/tpmrm0" is not tpm:PATH`},
		{"device without a path", []string{"--device", "tpm:"}, "--device: device: the path is empty"},
		{"relative device", []string{"--device", "swtpm:s"}, `--device: device: "s" is not an absolute path`},
		{"piv", []string{"--piv", "true"}, `--piv: piv: "true" is neither on nor off`},
	}
	for _, c := range cases {
		t.Run(c.about, func(t *testing.T) {
			got, err := resolve(t, home(t), c.args...)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %+v, %v, want an error that starts %q", got, err, c.want)
			}
		})
	}
	longest := "/" + strings.Repeat("d", guard.MaxSocketPath-1)
	if got := mustResolve(t, home(t), "--socket", longest).Socket; got != longest {
		t.Errorf("longest socket: got %q", got)
	}
}

func TestFileRejects(t *testing.T) {
	for text, want := range map[string]string{
		"prompt: loud":                        `:1: prompt: "loud" is not one of ["auto" "desktop" "terminal" "off"]`,
		"pinentry: pinentry":                  `:1: pinentry: "pinentry" is not an absolute path`,
		"remember-pins: on":                   `:1: remember-pins: "on" is neither secret-service nor off`,
		"limits:\n  queue-total: 99999999":    `:2: limits.queue-total: "99999999" is not a number from 1 to 1048576`,
		"limits:\n  unlock-max-seconds: 3601": `:2: limits.unlock-max-seconds: "3601" is not a number from 1 to 3600`,
	} {
		file := writeFile(t, t.TempDir()+"/agent.yaml", text)
		if _, err := resolve(t, home(t), "--config", file); err == nil || err.Error() != file+want {
			t.Errorf("%q: got %v, want %s", text, err, file+want)
		}
	}
}

func TestLimitsThatContradict(t *testing.T) {
	for text, want := range map[string]string{
		"limits: {queue-per-peer: 1025}":                       "limits: queue-per-peer 1025 is more than queue-total 1024",
		"limits: {queue-total: 255}":                           "limits: queue-per-peer 256 is more than queue-total 255",
		"limits: {unlock-max-seconds: 899}":                    "limits: unlock-seconds 15m0s is more than unlock-max-seconds 14m59s",
		"limits: {unlock-seconds: 61, unlock-max-seconds: 60}": "limits: unlock-seconds 1m1s is more than unlock-max-seconds 1m0s",
	} {
		file := writeFile(t, t.TempDir()+"/agent.yaml", text)
		if c, err := resolve(t, home(t), "--config", file); err == nil || err.Error() != want {
			t.Errorf("%s: got %+v, %v, want %s", text, c, err, want)
		}
	}
}

func TestExplain(t *testing.T) {
	c := mustResolve(t, home(t), "--device", "none", "--state", "/s")
	var out bytes.Buffer
	if err := c.Explain(&out); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"system false (default)", "state /s (--state)", "socket /run/user/1000/holdfast/agent.sock (default)", "admin-socket - (default)",
		"policy - (default)", "device none (--device)", "piv off (default)", "piv-program - (default)", "piv-roots - (default)",
		"prompt auto (default)", "pinentry - (default)", "remember-pins off (default)", "audit /s/audit.log (default)", "owner-auth-file - (default)",
		"limits.queue-per-peer 256 (default)", "limits.queue-total 1024 (default)", "limits.connections-per-uid 320 (default)",
		"limits.unlock-seconds 900 (default)", "limits.unlock-max-seconds 3600 (default)",
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

// The values in the example are the defaults.
func TestExampleIsTheDefault(t *testing.T) {
	path, err := filepath.Abs("../../packaging/examples/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The file of a checkout may have any owner and mode.
	got := fieldsOf(mustResolve(t, nil, "--config", writeFile(t, t.TempDir()+"/agent.yaml", string(text))))
	want := fieldsOf(mustResolve(t, nil, "--system"))
	want.Policy = "/etc/holdfast/policy.yaml"
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
