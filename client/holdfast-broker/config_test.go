package main

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// read resolves a command line and an environment.
func read(t *testing.T, env map[string]string, args ...string) (*config, error) {
	t.Helper()
	fs := flag.NewFlagSet("holdfast-broker", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	c := newConfig()
	c.Flags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c, c.Resolve(fs, func(name string) string { return env[name] })
}

func home(t *testing.T) (string, map[string]string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	return dir, map[string]string{"HOME": dir, "XDG_RUNTIME_DIR": "/run/user/7"}
}

func TestDefaults(t *testing.T) {
	dir, env := home(t)
	c, err := read(t, env)
	if err != nil {
		t.Fatal(err)
	}
	if c.socket != "/run/user/7/holdfast/broker.sock" || c.state != dir+"/.local/state/holdfast-broker" || c.profiles != dir+"/.config/holdfast/profiles" ||
		c.policy != "" || c.listen != "" || c.agentSocket != "" || c.loopbackKey != "auto" || c.level != 0 {
		t.Errorf("a user's: %+v", c)
	}
	c, err = read(t, env, "--system")
	if err != nil {
		t.Fatal(err)
	}
	if c.socket != "/run/holdfast/broker.sock" || c.state != "/var/lib/holdfast-broker" || c.profiles != "/etc/holdfast/profiles" || c.agentSocket != "/run/holdfast/agent.sock" {
		t.Errorf("the machine's: %+v", c)
	}
	if _, err := read(t, nil, "--state", "/s", "--socket", "/r/b.sock", "--profiles", "/p"); err != nil {
		t.Errorf("without a home, and everything given: %v", err)
	}
}

// The command line comes before the environment, that before the file.
func TestOrigins(t *testing.T) {
	dir, env := home(t)
	path := filepath.Join(dir, "b.yaml")
	text := "socket: /file/b.sock\nagent-socket: /file/a.sock\nlisten: 127.0.0.1:7001\nlog-level: debug\nsystem: false\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env["HOLDFAST_BROKER_SOCKET"], env["HOLDFAST_SOCKET"] = "/env/b.sock", "/env/a.sock"
	c, err := read(t, env, "--config", path, "--socket", "/flag/b.sock")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := c.Explain(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"/flag/b.sock (--socket)", "/env/a.sock (HOLDFAST_SOCKET)", "127.0.0.1:7001 (" + path + ":3)", "debug (" + path + ":4)",
		"policy - (default)", "false (" + path + ":5)", "auto (default)",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("nothing says %q:\n%s", want, &out)
		}
	}
}

func TestRejectedValues(t *testing.T) {
	dir, env := home(t)
	for _, args := range [][]string{
		{"--socket", "relative.sock"}, {"--socket", "@abstract"}, {"--listen", "0.0.0.0:1"}, {"--listen", ":80"}, {"--state", "x"},
		{"--profiles", "../p"}, {"--policy", ""}, {"--loopback-key", "tpm"}, {"--log-level", "loud"}, {"--config", "b.yaml"}, {"--config", dir + "/none.yaml"},
	} {
		if _, err := read(t, env, args...); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(args[0], "--")) && !strings.Contains(err.Error(), "none.yaml") {
			t.Errorf("%q: got %v, want an error that names the flag", args, err)
		}
	}
	path := filepath.Join(dir, "b.yaml")
	if err := os.WriteFile(path, []byte("sokcet: /x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := path + `:1: the configuration has no word "sokcet"; the words are agent-socket, listen, log-level, loopback-key, policy, profiles, socket, state, system`
	if _, err := read(t, env, "--config", path); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
