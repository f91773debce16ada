package config

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strconv"
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
	Flags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Resolve(flags, func(name string) string { return env[name] })
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

func TestFlagsBeforeFileBeforeDefaults(t *testing.T) {
	file := writeFile(t, t.TempDir()+"/agent.yaml", "state: /file/state\nsocket: /file/s\naudit: /file/audit\npiv: on\npiv-program: /file/piv\nlimits:\n  queue-total: 300\n")
	c := mustResolve(t, map[string]string{"HOLDFAST_SOCKET": "/env/s"}, "--config", file, "--state", "/flag/state", "--device=none")
	want := fields{
		State: "/flag/state", Socket: "/env/s", Device: "none", Audit: "/file/audit", PIV: true, Limits: defaultLimits(),
	}
	want.Limits.QueueTotal = 300
	if got := fieldsOf(c); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for name, want := range map[string]string{
		"state": "--state", "socket": "HOLDFAST_SOCKET", "device": "--device", "audit": file + ":3", "piv": file + ":4",
		"limits.queue-total": file + ":7", "limits.queue-per-peer": "default", "policy": "default", "no-such": "",
	} {
		if got := c.Origin(name); got != want {
			t.Errorf("origin of %s: got %q, want %q", name, got, want)
		}
	}
	if c.File() != file {
		t.Errorf("got file %q, want %q", c.File(), file)
	}
	c = mustResolve(t, map[string]string{"HOLDFAST_SOCKET": "/env/s"}, "--config", file, "--socket", "/flag/s", "--piv", "off")
	if c.Socket != "/flag/s" || c.PIV {
		t.Errorf("got socket %s, piv %t, want the flags' values", c.Socket, c.PIV)
	}
}

func TestFileOfTheUser(t *testing.T) {
	env := home(t)
	writeFile(t, env["HOME"]+"/.config/holdfast/agent.yaml", "device: none\n")
	if got := mustResolve(t, env).Device; got != "none" {
		t.Errorf("~/.config: got %s, want none", got)
	}
	env["XDG_CONFIG_HOME"] = t.TempDir()
	if got := mustResolve(t, env).Device; got != "tpm:/dev/tpmrm0" {
		t.Errorf("empty XDG_CONFIG_HOME: got %s, want the default", got)
	}
	writeFile(t, env["XDG_CONFIG_HOME"]+"/holdfast/agent.yaml", "device: nonsense\n")
	if _, err := resolve(t, env); err == nil {
		t.Error("a faulty file: got no error")
	}
}

func TestFileMayChooseTheMode(t *testing.T) {
	file := writeFile(t, t.TempDir()+"/agent.yaml", "system: true\n")
	if c := mustResolve(t, nil, "--config", file); !c.System || c.State != "/var/lib/holdfast" {
		t.Errorf("got %+v, want the machine's agent", fieldsOf(c))
	}
	if c := mustResolve(t, home(t), "--config", file, "--system=false"); c.System {
		t.Errorf("got %+v, want the user's agent", fieldsOf(c))
	}
}

func TestResolveRefuses(t *testing.T) {
	long := "/" + strings.Repeat("d", guard.MaxSocketPath)
	cases := []struct {
		about string
		args  []string
		want  string
	}{
		{"relative state", []string{"--state", "x"}, `--state: state: "x" is not an absolute path`},
		{"empty state", []string{"--state", ""}, "--state: state: the path is empty"},
		{"unclean state", []string{"--state", "/a/../b"}, `--state: state: "/a/../b" would be written "/b"`},
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
		{"relative config", []string{"--config", "x"}, `--config: "x" is not an absolute path`},
		{"missing config", []string{"--config", "/no/such/file"}, "open /no/such/file"},
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

func TestResolveRefusesLimitsThatContradict(t *testing.T) {
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

func TestNoHome(t *testing.T) {
	if _, err := resolve(t, map[string]string{"XDG_RUNTIME_DIR": "/run/user/1"}); err == nil || !strings.HasPrefix(err.Error(), "state: neither") {
		t.Errorf("got %v, want an error about the state", err)
	}
	mustResolve(t, nil, "--state", "/s", "--socket", "/x") // needs neither
}

// /tmp never takes the place of XDG_RUNTIME_DIR.
func TestNoRuntimeDirectory(t *testing.T) {
	env := home(t)
	delete(env, "XDG_RUNTIME_DIR")
	directory := "/run/user/" + strconv.Itoa(os.Geteuid())
	info, err := os.Lstat(directory)
	c, rerr := resolve(t, env)
	if err == nil && info.IsDir() && info.Mode().Perm() == 0o700 {
		if rerr != nil || c.Socket != directory+"/holdfast/agent.sock" {
			t.Errorf("got %+v, %v, want a socket in %s", c, rerr, directory)
		}
		return
	}
	if rerr == nil || !strings.HasPrefix(rerr.Error(), "socket: XDG_RUNTIME_DIR is not set, and ") {
		t.Errorf("got %+v, %v, want an error about XDG_RUNTIME_DIR", c, rerr)
	}
	env["XDG_RUNTIME_DIR"] = "relative"
	if c, err := resolve(t, env); err == nil {
		t.Errorf("relative: got %+v, want an error", c)
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

func TestExplainReportsWriteErrors(t *testing.T) {
	c := mustResolve(t, home(t))
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := c.Explain(full); err == nil {
		t.Error("got no error from a full device")
	}
}
