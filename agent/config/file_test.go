package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/guard"
)

// baseline is a good file; each case of TestParseRefuses spoils one thing.
const baseline = `system: true
state: /s
socket: /r/agent.sock
piv: off
limits:
  queue-per-peer: 10
  unlock-seconds: 60
device: tpm:/dev/tpmrm0
`

func TestParseTakesTheBaseline(t *testing.T) {
	c, err := Parse("agent.yaml", []byte(baseline))
	if err != nil {
		t.Fatal(err)
	}
	want := fields{System: true, State: "/s", Socket: "/r/agent.sock", Device: "tpm:/dev/tpmrm0"}
	want.Limits.QueuePerPeer, want.Limits.UnlockDefault = 10, 60e9
	if got := fieldsOf(c); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParseTakesNothing(t *testing.T) {
	for _, text := range []string{"", "# nothing\n"} {
		if c, err := Parse("agent.yaml", []byte(text)); err != nil || fieldsOf(c) != (fields{}) {
			t.Errorf("%q: got %+v, %v", text, c, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	cases := []struct{ about, old, new, want string }{
		{"unknown word", "state:", "stat:", `agent.yaml:2: there is no setting "stat"`},
		{"other case", "state:", "State:", `agent.yaml:2: there is no setting "State"`},
		{"word twice", "socket:", "state:", "agent.yaml:3: state is there already"},
		{"limits twice", "device:", "limits:", `agent.yaml:8: there is no setting "limits"`},
		{"limit twice", "unlock-seconds", "queue-per-peer", "agent.yaml:7: limits.queue-per-peer is there already"},
		{"unknown limit", "unlock-seconds", "unlock", `agent.yaml:7: there is no setting "limits.unlock"`},
		{"limit at the top", "piv: off", "limits.queue-total: 5", `agent.yaml:4: there is no setting "limits.queue-total"`},
		{"limit without limits", "piv: off", "queue-total: 5", `agent.yaml:4: there is no setting "queue-total"`},
		{"limits are a number", "limits:\n  queue-per-peer: 10\n  unlock-seconds: 60", "limits: 1", "agent.yaml:5: lines of"},
		{"boolean as text", "system: true", "system: yes", "agent.yaml:1: system: a true or false is wanted"},
		{"boolean in capitals", "system: true", "system: True", "agent.yaml:1: system: "},
		{"path as number", "state: /s", "state: 1", "agent.yaml:2: state: a text is wanted here"},
		{"path missing", "state: /s", "state:", "agent.yaml:2: state: a text is wanted here"},
		{"path empty", "state: /s", `state: ""`, "agent.yaml:2: state: the path is empty"},
		{"path relative", "state: /s", "state: s", `agent.yaml:2: state: "s" is not an absolute path`},
		{"path with a variable", "state: /s", "state: ~/s", `agent.yaml:2: state: "~/s" is not an absolute path`},
		{"path is a list", "state: /s", "state: [/s]", "agent.yaml:2: state: a text is wanted here"},
		{"piv as boolean", "piv: off", "piv: false", "agent.yaml:4: piv: a text is wanted here"},
		{"piv unknown", "piv: off", "piv: maybe", `agent.yaml:4: piv: "maybe" is neither on nor off`},
		{"number as text", "peer: 10", `peer: "10"`, "agent.yaml:6: limits.queue-per-peer: a number is wanted here"},
		{"number zero", "peer: 10", "peer: 0", `agent.yaml:6: limits.queue-per-peer: "0" is not a number from 1`},
		{"number negative", "peer: 10", "peer: -1", "agent.yaml:6: limits.queue-per-peer: "},
		{"number in octal", "peer: 10", "peer: 010", "agent.yaml:6: limits.queue-per-peer: "},
		{"number with underscore", "peer: 10", "peer: 1_0", "agent.yaml:6: limits.queue-per-peer: "},
		{"number broken", "peer: 10", "peer: 1.5", "agent.yaml:6: limits.queue-per-peer: a number is wanted here"},
		{"number too large", "peer: 10", "peer: 99999999", "agent.yaml:6: limits.queue-per-peer: "},
		{"unlocked too long", "seconds: 60", "seconds: 3601", `agent.yaml:7: limits.unlock-seconds: "3601" is not a number from 1 to 3600`},
		{"alias", "piv: off", "piv: &x off\npolicy: *x", "agent.yaml:5: policy: a text is wanted here"},
		{"tag", "piv: off", "piv: !on off", "agent.yaml:4: piv: a text is wanted here"},
		{"second document", "piv: off", "---\npiv: off", "agent.yaml:4: a second document"},
		{"list", baseline, "- state: /s\n", "agent.yaml:1: lines of"},
		{"null", baseline, "null\n", "agent.yaml:1: lines of"},
		{"broken", "state: /s", "state: [", "agent.yaml:"},
		{"no text", baseline, "\x00", "agent.yaml:"},
		{"too long", baseline, strings.Repeat("# long\n", MaxFile/7+1), "agent.yaml: longer than"},
	}
	for _, c := range cases {
		t.Run(c.about, func(t *testing.T) {
			if !strings.Contains(baseline, c.old) {
				t.Fatalf("the baseline has no %q", c.old)
			}
			got, err := Parse("agent.yaml", []byte(strings.Replace(baseline, c.old, c.new, 1)))
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %+v, %v, want an error that starts %q", got, err, c.want)
			}
		})
	}
}

func TestParseReportsEveryFault(t *testing.T) {
	text := strings.NewReplacer("state: /s", "state: s", "unlock-seconds", "unlock", "tpm:/", "tmp:/").Replace(baseline)
	_, err := Parse("agent.yaml", []byte(text))
	if err == nil {
		t.Fatal("got no error")
	}
	if got := strings.Split(err.Error(), "\n"); len(got) != 3 {
		t.Errorf("got %d faults, want 3: %v", len(got), err)
	}
}

// The example says what the defaults are.
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

func TestLoadRefusesWhatOthersCanWrite(t *testing.T) {
	directory := t.TempDir()
	cases := []struct {
		about  string
		change func(path string) error
		want   string // empty: it loads
	}{
		{"as it is", func(string) error { return nil }, ""},
		{"read by all", func(p string) error { return os.Chmod(p, 0o444) }, ""},
		{"written by all", func(p string) error { return os.Chmod(p, 0o646) }, "mode 0646) is not safe: others can write it"},
		{"written by root's group", func(p string) error { return os.Chmod(p, 0o664) }, "mode 0664) is not safe: others can write it"},
		{"of somebody else", func(p string) error { return os.Chown(p, 1000, 0) }, "(owner uid 1000, mode 0644) is not safe: it has to be"},
		{"directory", func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) }, "is not a regular file"},
		{"symbolic link to a good file", func(p string) error {
			return errors.Join(os.Rename(p, p+".real"), os.Symlink(p+".real", p))
		}, ""},
	}
	if os.Geteuid() != 0 {
		t.Fatal("this test gives files away and has to run as root")
	}
	for i, c := range cases {
		path := writeFile(t, filepath.Join(directory, string(rune('a'+i))), "device: none\n")
		if err := c.change(path); err != nil {
			t.Fatal(err)
		}
		config, err := Load(path)
		if c.want == "" && (err != nil || config.Device != "none") {
			t.Errorf("%s: got %+v, %v", c.about, config, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want an error with %q", c.about, err, c.want)
		}
		if checked := guard.CheckFile(path); (checked == nil) != (err == nil) {
			t.Errorf("%s: CheckFile says %v, Load %v", c.about, checked, err)
		}
	}
	if _, err := Load(directory + "/missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}

func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../../packaging/examples/agent.yaml")
	if err != nil {
		f.Fatal(err)
	}
	seeds := []string{
		baseline, string(example), "", "limits: {queue-total: 1}", "limits: &a {queue-total: 1}\n? [x]\n: 1", "a: &a [*a]",
		"%YAML 1.1\n---\n", "<<: {state: /x}", "limits.queue-total: 1",
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "f:") {
					t.Errorf("fault without file and line: %q", line)
				}
			}
			return
		}
		for _, path := range []string{c.State, c.Socket, c.AdminSocket, c.Policy, c.Audit, c.OwnerAuthFile} {
			if path != "" && guard.CheckPath(path) != nil {
				t.Errorf("the path %q passed", path)
			}
		}
		if len(c.Socket) > guard.MaxSocketPath || c.Limits.UnlockMax.Seconds() > maxUnlock || c.Limits.QueueTotal < 0 {
			t.Errorf("got %+v", fieldsOf(c))
		}
	})
}
