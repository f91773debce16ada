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
	given := flags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return resolve(given, func(name string) string { return env[name] })
}

func home(t *testing.T) (string, map[string]string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	t.Setenv("HOLDFAST_BROKER_SOCKET", "")
	return dir, map[string]string{"HOME": dir}
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
	if err := c.explain(&out); err != nil {
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

func TestRefusedValues(t *testing.T) {
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
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, env, "--config", path); err == nil || !strings.Contains(err.Error(), "not safe") {
		t.Errorf("a file that others can write: %v", err)
	}
}

func TestFileFaults(t *testing.T) {
	for text, want := range map[string]string{
		"sokcet: /x\n":              `b.yaml:1: there is no setting "sokcet"`,
		"state: /x\nstate: /y\n":    "b.yaml:2: state is there already",
		"state: 7\n":                "b.yaml:1: state: a text is wanted here",
		"system: yes please\n":      "b.yaml:1: system: a true or false is wanted here",
		"state: [a]\n":              "b.yaml:1: state: a text is wanted here",
		"- a\n":                     `b.yaml:1: lines of "word: value" are wanted here`,
		"state: /x\n---\nstate: /y": "b.yaml: more than one document",
		"config: /x\n":              `b.yaml:1: there is no setting "config"`,
		"state: *x\n":               "b.yaml: yaml: unknown anchor 'x' referenced",
	} {
		if _, err := parse("b.yaml", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	if _, err := parse("b.yaml", []byte("a: 1\nb: 2\n")); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two faults: got %v", err)
	}
	if words, err := parse("b.yaml", []byte("# nothing\n")); len(words) != 0 || err != nil {
		t.Errorf("an empty file: %v, %v", words, err)
	}
	if _, err := parse("b.yaml", make([]byte, maxFile+1)); err == nil {
		t.Error("a huge file was read")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("socket: /run/b.sock\nsystem: true\nlisten: 127.0.0.1:1\n"))
	f.Add([]byte("state: &x /s\nprofiles: *x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		words, err := parse("b.yaml", data)
		if err != nil {
			return
		}
		for name := range words {
			known := false
			for _, s := range settings() {
				known = known || s.name == name
			}
			if !known {
				t.Errorf("took the word %q", name)
			}
		}
	})
}
