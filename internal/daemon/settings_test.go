package daemon

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/internal/guard"
	"holdfast/internal/strictyaml"
)

// sample is the settings of a daemon that has one of each kind.
type sample struct {
	*Settings
	values
}

type values struct {
	System   bool
	State    string
	Socket   string
	Policy   string
	Cards    bool
	Audit    string
	Waiting  int
	Unlocked time.Duration
}

func newSample() *sample {
	s := &sample{}
	s.Settings = NewSettings("sample.yaml", s.check,
		Setting{Name: "system", Value: Bool(&s.System), Usage: "be the machine's daemon", Default: Always("false")},
		Setting{
			Name: "state", Value: Text(&s.State, guard.CheckPath), Usage: "keep records in `directory`",
			Default: InState("holdfast"), Machine: Always("/var/lib/holdfast"),
		},
		Setting{
			Name: "socket", Value: Text(&s.Socket, guard.CheckSocketPath), Usage: "listen on `path`", Variable: "SAMPLE_SOCKET",
			Default: InRuntime("holdfast/sample.sock"), Machine: Always("/run/holdfast/sample.sock"),
		},
		Setting{Name: "policy", Value: Text(&s.Policy, guard.CheckPath), Machine: SystemFile("no-such-file.yaml")},
		Setting{Name: "piv", Value: Switch(&s.Cards, "on", "off"), Usage: "use cards: `on` or off", Default: Always("off")},
		Setting{
			Name: "audit", Value: Text(&s.Audit, guard.CheckPath),
			Default: func(Environment) (string, error) { return filepath.Join(s.State, "audit.log"), nil },
		},
		Setting{Name: "limits.waiting", Value: Number(&s.Waiting, 1000), Default: Always("256")},
		Setting{Name: "limits.unlock-seconds", Value: Seconds(&s.Unlocked, 3600), Default: Always("900")},
	)
	return s
}

func (s *sample) check() error {
	if s.System && s.Cards {
		return errors.New("the machine has no cards")
	}
	return nil
}

// resolve resolves a command line in an environment that is empty but for env.
func resolve(t *testing.T, env map[string]string, args ...string) (*sample, error) {
	t.Helper()
	s := newSample()
	flags := flag.NewFlagSet("sample", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	s.Flags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return s, s.Resolve(flags, func(name string) string { return env[name] })
}

func mustResolve(t *testing.T, env map[string]string, args ...string) *sample {
	t.Helper()
	s, err := resolve(t, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// home is the environment of a user without configuration.
func home(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{"HOME": t.TempDir(), "XDG_RUNTIME_DIR": "/run/user/1000"}
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

func TestDefaults(t *testing.T) {
	env := home(t)
	state := env["HOME"] + "/.local/state/holdfast"
	want := values{
		State: state, Socket: "/run/user/1000/holdfast/sample.sock", Audit: state + "/audit.log",
		Waiting: 256, Unlocked: 15 * time.Minute,
	}
	if got := mustResolve(t, env).values; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	env["XDG_STATE_HOME"] = "/var/tmp/state"
	want.State, want.Audit = "/var/tmp/state/holdfast", "/var/tmp/state/holdfast/audit.log"
	if got := mustResolve(t, env).values; got != want {
		t.Errorf("XDG_STATE_HOME: got %+v, want %+v", got, want)
	}
	env["XDG_STATE_HOME"] = "relative"
	if got := mustResolve(t, env).State; got != state {
		t.Errorf("relative XDG_STATE_HOME: got %s, want %s", got, state)
	}
	want.System, want.State, want.Socket, want.Audit = true, "/var/lib/holdfast", "/run/holdfast/sample.sock", "/var/lib/holdfast/audit.log"
	if got := mustResolve(t, nil, "--system").values; got != want {
		t.Errorf("the machine's: got %+v, want %+v", got, want)
	}
}

func TestFlagsBeforeEnvironmentBeforeFileBeforeDefaults(t *testing.T) {
	file := writeFile(t, t.TempDir()+"/sample.yaml", "state: /file/state\nsocket: /file/s\naudit: /file/audit\npiv: on\nlimits:\n  waiting: 300\n")
	env := map[string]string{"SAMPLE_SOCKET": "/env/s"}
	s := mustResolve(t, env, "--config", file, "--state", "/flag/state")
	want := values{State: "/flag/state", Socket: "/env/s", Audit: "/file/audit", Cards: true, Waiting: 300, Unlocked: 15 * time.Minute}
	if s.values != want {
		t.Errorf("got %+v, want %+v", s.values, want)
	}
	for name, want := range map[string]string{
		"state": "--state", "socket": "SAMPLE_SOCKET", "audit": file + ":3", "piv": file + ":4",
		"limits.waiting": file + ":6", "limits.unlock-seconds": "default", "policy": "default", "no-such": "",
	} {
		if got := s.Origin(name); got != want {
			t.Errorf("origin of %s: got %q, want %q", name, got, want)
		}
	}
	if s.file != file {
		t.Errorf("got file %q, want %q", s.file, file)
	}
	s = mustResolve(t, env, "--config", file, "--socket", "/flag/s", "--piv", "off")
	if s.Socket != "/flag/s" || s.Cards {
		t.Errorf("got socket %s, piv %t, want the flags' values", s.Socket, s.Cards)
	}
}

func TestFileOfTheUser(t *testing.T) {
	env := home(t)
	writeFile(t, env["HOME"]+"/.config/holdfast/sample.yaml", "piv: on\n")
	if !mustResolve(t, env).Cards {
		t.Error("~/.config: the file was not read")
	}
	env["XDG_CONFIG_HOME"] = t.TempDir()
	if s := mustResolve(t, env); s.Cards || s.file != "" {
		t.Errorf("empty XDG_CONFIG_HOME: got %+v from %q, want the defaults", s.values, s.file)
	}
	writeFile(t, env["XDG_CONFIG_HOME"]+"/holdfast/sample.yaml", "piv: nonsense\n")
	if _, err := resolve(t, env); err == nil {
		t.Error("a faulty file: got no error")
	}
}

func TestFileMayChooseTheMode(t *testing.T) {
	file := writeFile(t, t.TempDir()+"/sample.yaml", "system: true\n")
	if s := mustResolve(t, nil, "--config", file); !s.System || s.State != "/var/lib/holdfast" {
		t.Errorf("got %+v, want the machine's daemon", s.values)
	}
	if s := mustResolve(t, home(t), "--config", file, "--system=false"); s.System {
		t.Errorf("got %+v, want the user's daemon", s.values)
	}
}

func TestResolveRejects(t *testing.T) {
	for _, c := range []struct {
		about string
		args  []string
		want  string
	}{
		{"relative path", []string{"--state", "x"}, `--state: state: "x" is not an absolute path`},
		{"empty path", []string{"--state", ""}, "--state: state: the path is empty"},
		{"switch", []string{"--piv", "true"}, `--piv: piv: "true" is neither on nor off`},
		{"relative file", []string{"--config", "x"}, `--config: "x" is not an absolute path`},
		{"missing file", []string{"--config", "/no/such/file"}, "open /no/such/file"},
		{"values that contradict", []string{"--system", "--piv", "on"}, "the machine has no cards"},
	} {
		if s, err := resolve(t, home(t), c.args...); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %+v, %v, want an error that starts %q", c.about, s.values, err, c.want)
		}
	}
}

// A default that nothing needs does not fail.
func TestNoHome(t *testing.T) {
	_, err := resolve(t, map[string]string{"XDG_RUNTIME_DIR": "/run/user/1"})
	if want := "state: neither XDG_STATE_HOME nor HOME is an absolute path; --state names a directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	mustResolve(t, nil, "--state", "/s", "--socket", "/x")
}

// /tmp never takes the place of XDG_RUNTIME_DIR.
func TestNoRuntimeDirectory(t *testing.T) {
	env := home(t)
	delete(env, "XDG_RUNTIME_DIR")
	directory := "/run/user/" + strconv.Itoa(os.Geteuid())
	info, err := os.Lstat(directory)
	s, rerr := resolve(t, env)
	if err == nil && info.IsDir() && info.Mode().Perm() == 0o700 {
		if rerr != nil || s.Socket != directory+"/holdfast/sample.sock" {
			t.Errorf("got %+v, %v, want a socket in %s", s.values, rerr, directory)
		}
		return
	}
	if rerr == nil || !strings.HasPrefix(rerr.Error(), "socket: XDG_RUNTIME_DIR is not set, and ") || !strings.HasSuffix(rerr.Error(), "; --socket names a path") {
		t.Errorf("got %+v, %v, want an error about XDG_RUNTIME_DIR", s.values, rerr)
	}
	env["XDG_RUNTIME_DIR"] = "relative"
	if s, err := resolve(t, env); err == nil {
		t.Errorf("relative: got %+v, want an error", s.values)
	}
}

func TestExplain(t *testing.T) {
	var out bytes.Buffer
	if err := mustResolve(t, home(t), "--state", "/s").Explain(&out); err != nil {
		t.Fatal(err)
	}
	want := `system                 false                                (default)
state                  /s                                   (--state)
socket                 /run/user/1000/holdfast/sample.sock  (default)
policy                 -                                    (default)
piv                    off                                  (default)
audit                  /s/audit.log                         (default)
limits.waiting         256                                  (default)
limits.unlock-seconds  900                                  (default)
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

func TestExplainReportsWriteErrors(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := mustResolve(t, home(t)).Explain(full); err == nil {
		t.Error("got no error from a full device")
	}
}

// The output of a value is one of its inputs.
func TestValuesRoundTrip(t *testing.T) {
	s := newSample()
	for _, row := range s.list {
		value := map[kind]string{number: "7", boolean: "true", text: "/some/path"}[row.Value.kind]
		if row.Name == "piv" {
			value = "on"
		}
		if err := s.set(row, value, "here"); err != nil {
			t.Errorf("%s: %v", row.Name, err)
		}
		if got := row.Value.get(); got != value {
			t.Errorf("%s: got %q, want %q", row.Name, got, value)
		}
		if err := s.set(row, "\x01", "there"); err == nil || s.Origin(row.Name) != "here" {
			t.Errorf("%s: nonsense gave %v and origin %q", row.Name, err, s.Origin(row.Name))
		}
	}
}

func TestNumber(t *testing.T) {
	for value, want := range map[string]int{
		"1": 1, "10": 10, "0": 0, "-1": 0, "11": 0, "": 0, "+1": 0, "01": 0, "1 ": 0, "0x1": 0, "1e1": 0, "99999999999999999999": 0,
	} {
		got, err := parseNumber(value, 10)
		if (err == nil) != (want > 0) || err == nil && got != want {
			t.Errorf("%q: got %d, %v, want %d", value, got, err, want)
		}
	}
}

// baseline is a good file; each case of TestParseRejects spoils one thing.
const baseline = `system: true
state: /s
socket: /r/s.sock
piv: off
limits:
  waiting: 10
  unlock-seconds: 60
`

func TestParse(t *testing.T) {
	s := newSample()
	if err := s.Parse("sample.yaml", []byte(baseline)); err != nil {
		t.Fatal(err)
	}
	want := values{System: true, State: "/s", Socket: "/r/s.sock", Waiting: 10, Unlocked: time.Minute}
	if s.values != want {
		t.Errorf("got %+v, want %+v", s.values, want)
	}
	for _, text := range []string{"", "# nothing\n"} {
		if s := newSample(); s.Parse("sample.yaml", []byte(text)) != nil || s.values != (values{}) {
			t.Errorf("%q: got %+v", text, s.values)
		}
	}
}

func TestParseRejects(t *testing.T) {
	for _, c := range []struct{ about, old, new, want string }{
		{"unknown word", "state:", "stat:", `sample.yaml:2: the configuration has no word "stat"; the words are audit, limits, piv, policy, socket, state, system`},
		{"other case", "state:", "State:", `sample.yaml:2: the configuration has no word "State"`},
		{"word twice", "socket:", "state:", "sample.yaml:3: state is there already"},
		{"limit twice", "unlock-seconds", "waiting", "sample.yaml:7: waiting is there already"},
		{"unknown limit", "unlock-seconds", "unlock", `sample.yaml:7: limits has no word "unlock"`},
		{"limit at the top", "piv: off", "limits.waiting: 5", `sample.yaml:4: the configuration has no word "limits.waiting"`},
		{"limit without limits", "piv: off", "waiting: 5", `sample.yaml:4: the configuration has no word "waiting"`},
		{"limits are a number", "limits:\n  waiting: 10\n  unlock-seconds: 60", "limits: 1", "sample.yaml:5: limits must be a mapping of"},
		{"boolean as text", "system: true", "system: yes", "sample.yaml:1: system: expected true or false"},
		{"boolean in capitals", "system: true", "system: True", "sample.yaml:1: system: "},
		{"path as number", "state: /s", "state: 1", "sample.yaml:2: state: expected a string"},
		{"path missing", "state: /s", "state:", "sample.yaml:2: state: expected a string"},
		{"path empty", "state: /s", `state: ""`, "sample.yaml:2: state: the path is empty"},
		{"path with a variable", "state: /s", "state: ~/s", `sample.yaml:2: state: "~/s" is not an absolute path`},
		{"path is a list", "state: /s", "state: [/s]", "sample.yaml:2: state: expected a string"},
		{"switch as boolean", "piv: off", "piv: false", "sample.yaml:4: piv: expected a string"},
		{"switch unknown", "piv: off", "piv: maybe", `sample.yaml:4: piv: "maybe" is neither on nor off`},
		{"number as text", "waiting: 10", `waiting: "10"`, "sample.yaml:6: limits.waiting: expected a number"},
		{"number zero", "waiting: 10", "waiting: 0", `sample.yaml:6: limits.waiting: "0" is not a number from 1 to 1000`},
		{"number negative", "waiting: 10", "waiting: -1", "sample.yaml:6: limits.waiting: "},
		{"number in octal", "waiting: 10", "waiting: 010", "sample.yaml:6: limits.waiting: "},
		{"number with underscore", "waiting: 10", "waiting: 1_0", "sample.yaml:6: limits.waiting: "},
		{"number broken", "waiting: 10", "waiting: 1.5", "sample.yaml:6: limits.waiting: expected a number"},
		{"number too large", "waiting: 10", "waiting: 1001", "sample.yaml:6: limits.waiting: "},
		{"seconds too large", "seconds: 60", "seconds: 3601", `sample.yaml:7: limits.unlock-seconds: "3601" is not a number from 1 to 3600`},
		{"alias", "piv: off", "piv: &x off\npolicy: *x", "sample.yaml:4: anchors"},
		{"second document", "piv: off", "---\npiv: off", "sample.yaml:4: a second document"},
		{"list", baseline, "- state: /s\n", "sample.yaml:1: the configuration must be a mapping of \"word: value\" lines"},
		{"too long", baseline, strings.Repeat("# long\n", strictyaml.MaxFile/7+1), "sample.yaml:1: longer than"},
	} {
		if !strings.Contains(baseline, c.old) {
			t.Fatalf("%s: the baseline has no %q", c.about, c.old)
		}
		err := newSample().Parse("sample.yaml", []byte(strings.Replace(baseline, c.old, c.new, 1)))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error that starts %q", c.about, err, c.want)
		}
	}
}

func TestParseReportsEveryFault(t *testing.T) {
	text := strings.NewReplacer("state: /s", "state: s", "unlock-seconds", "unlock", "off", "maybe").Replace(baseline)
	err := newSample().Parse("sample.yaml", []byte(text))
	if err == nil || len(strings.Split(err.Error(), "\n")) != 3 {
		t.Errorf("got %v, want 3 faults", err)
	}
}

func TestLoadRejectsWhatOthersCanWrite(t *testing.T) {
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
		{"of another user", func(p string) error { return os.Chown(p, 1000, 0) }, "(owner uid 1000, mode 0644) is not safe: it has to be"},
		{"directory", func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) }, "is not a regular file"},
		{"symbolic link to a good file", func(p string) error {
			return errors.Join(os.Rename(p, p+".real"), os.Symlink(p+".real", p))
		}, ""},
	}
	if os.Geteuid() != 0 {
		t.Fatal("this test gives files away and has to run as root")
	}
	for i, c := range cases {
		path := writeFile(t, filepath.Join(directory, string(rune('a'+i))), "piv: on\n")
		if err := c.change(path); err != nil {
			t.Fatal(err)
		}
		s := newSample()
		err := s.Load(path)
		if c.want == "" && (err != nil || !s.Cards) {
			t.Errorf("%s: got %+v, %v", c.about, s.values, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want an error with %q", c.about, err, c.want)
		}
		if checked := guard.CheckFile(path); (checked == nil) != (err == nil) {
			t.Errorf("%s: CheckFile says %v, Load %v", c.about, checked, err)
		}
	}
	if err := newSample().Load(directory + "/missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}

func FuzzParse(f *testing.F) {
	seeds := []string{
		baseline, "", "limits: {waiting: 1}", "limits: &a {waiting: 1}\n? [x]\n: 1", "a: &a [*a]",
		"%YAML 1.1\n---\n", "<<: {state: /x}", "limits.waiting: 1",
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newSample()
		if err := s.Parse("f", data); err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "f:") {
					t.Errorf("fault without file and line: %q", line)
				}
			}
			return
		}
		for _, path := range []string{s.State, s.Socket, s.Policy, s.Audit} {
			if path != "" && guard.CheckPath(path) != nil {
				t.Errorf("the path %q passed", path)
			}
		}
		if len(s.Socket) > guard.MaxSocketPath || s.Unlocked > time.Hour || s.Waiting < 0 || s.Waiting > 1000 {
			t.Errorf("got %+v", s.values)
		}
	})
}
