package strictyaml

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// file is what the tests read: each kind of value once, and a section.
type file struct {
	Name   string
	On     bool
	Port   int64
	Share  float64
	Age    time.Duration
	Modes  []string
	Limits struct{ Total int64 }
}

// read reads a file as a package of this module would.
func read(data string) (*file, error) {
	r, root, err := Parse("f.yaml", []byte(data))
	if err != nil {
		return nil, err
	}
	f := new(file)
	r.Fields(root, "a file", map[string]func(*Node){
		"name":  func(n *Node) { f.Name, _ = r.Text(n, "name: a string") },
		"on":    func(n *Node) { f.On, _ = r.Bool(n, "on: ") },
		"port":  func(n *Node) { f.Port, _ = r.Int(n, "a port from 1 to 65535", 1, 65535) },
		"share": func(n *Node) { f.Share, _ = r.Float(n, "a fraction") },
		"age":   func(n *Node) { f.Age, _ = r.Duration(n, "age: ") },
		"modes": func(n *Node) {
			f.Modes, _ = List(r, n, "modes: a list", func(n *Node) (string, bool) { return r.Text(n, "a mode") })
		},
		"limits": func(n *Node) {
			r.Fields(n, "limits", map[string]func(*Node){
				"total": func(n *Node) { f.Limits.Total, _ = r.Int(n, "a number", 0, 10) },
			})
		},
	})
	return f, r.Err()
}

// baseline is a good file; each case of TestRefuses changes one thing.
const baseline = `name: web # the name
on: true
port: 80
share: 0.5
age: 90s
modes: [proxy, "token"]
limits:
  total: 10
`

func TestReads(t *testing.T) {
	got, err := read(baseline)
	if err != nil {
		t.Fatal(err)
	}
	want := &file{Name: "web", On: true, Port: 80, Share: 0.5, Age: 90 * time.Second, Modes: []string{"proxy", "token"}}
	want.Limits.Total = 10
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, err := read(`{"name": "", "limits": {}}`); err != nil || got.Name != "" {
		t.Errorf("JSON: got %+v, %v", got, err)
	}
}

func TestRefuses(t *testing.T) {
	for _, c := range []struct{ about, old, new, want string }{
		{"unknown word", "name:", "nam:", `1: a file has no word "nam"; the words are age, limits, modes, name, on, port, share`},
		{"other case", "name:", "Name:", `1: a file has no word "Name"`},
		{"unknown word of a section", "total", "totl", `8: limits has no word "totl"; the words are total`},
		{"word twice", "on: true", "name: api", "2: name is there already, on line 1"},
		{"word twice in a section", "  total: 10", "  total: 1\n  total: 2", "9: total is there already, on line 8"},
		{"word is a number", "name:", "1:", `1: a file has no word "1"`},
		{"word is a list", "name:", "? [name]\n:", `1: a file has no word a list`},
		{"section is text", "\n  total: 10", " secret", `7: limits must be a mapping of "word: value" lines, not a string`},
		{"section is a list", "\n  total: 10", " [1]", `7: limits must be a mapping of "word: value" lines, not a list`},
		{"section is empty", "\n  total: 10", "", `7: limits must be a mapping of "word: value" lines, not nothing`},
		{"text is a number", "web", "1", "1: name: expected a string, not a number"},
		{"text is a boolean", "web", "true", "1: name: expected a string, not true or false"},
		{"text is a date", "web", "2001-01-01", "1: name: expected a string, not a date"},
		{"text is missing", "web", "", "1: name: expected a string, not nothing"},
		{"text is a mapping", "web", "{a: b}", "1: name: expected a string, not a mapping"},
		{"boolean as text", "true", "yes", `2: on: expected true or false, not "yes"`},
		{"boolean in quotes", "true", `"true"`, `2: on: expected true or false, not "true"`},
		{"boolean in capitals", "true", "TRUE", `2: on: expected true or false, not "TRUE"`},
		{"number too small", "80", "0", `3: expected a port from 1 to 65535, not "0"`},
		{"number too large", "80", "65536", `3: expected a port from 1 to 65535, not "65536"`},
		{"number beyond 64 bits", "80", "99999999999999999999", "3: expected a port"},
		{"number in octal", "80", "010", `3: expected a port from 1 to 65535, not "010"`},
		{"number in hexadecimal", "80", "0x50", "3: expected a port"},
		{"number with underscore", "80", "8_0", "3: expected a port"},
		{"number with sign", "80", "+80", "3: expected a port"},
		{"number as text", "80", `"80"`, "3: expected a port"},
		{"number with a fraction", "80", "80.0", "3: expected a port"},
		{"fraction as text", "0.5", "half", `4: expected a fraction, not "half"`},
		{"fraction in hexadecimal", "0.5", "0x1", "4: expected a fraction"},
		{"fraction with underscore", "0.5", "0_0.5", "4: expected a fraction"},
		{"duration without unit", "90s", "90", `5: age: expected a duration such as 90s, 10m or 24h, not "90"`},
		{"duration zero", "90s", "0s", "5: age: expected a duration"},
		{"duration negative", "90s", "-1s", "5: age: expected a duration"},
		{"duration in days", "90s", "1d", "5: age: expected a duration"},
		{"list is text", `[proxy, "token"]`, "proxy", "6: modes: expected a list such as [one, two], not a string"},
		{"list is empty", `[proxy, "token"]`, "[]", "6: modes: expected a list such as [one, two], not an empty list"},
		{"item twice", `"token"`, "proxy", `6: "proxy" is in the list already`},
		{"item of another kind", `"token"`, "[a]", "6: expected a mode, not a list"},
		{"anchor", "web", "&a web", "1: anchors such as &a are not accepted"},
		{"alias", "port: 80", "port: &a 80\nshare: *a", "3: anchors such as &a are not accepted\nf.yaml:4: aliases such as *a are not accepted"},
		{"alias to itself", `[proxy, "token"]`, "&a [*a]", "6: anchors such as &a are not accepted\nf.yaml:6: aliases such as *a are not accepted"},
		{"merge key", "  total: 10", "  <<: {total: 10}", "8: merge keys (<<) are not accepted"},
		{"tag", "web", "!x web", "1: tags such as !x are not accepted"},
		{"tag that says the same", "web", "!!str web", "1: tags such as !!str are not accepted"},
		{"tag of a word", "name:", "!!binary name:", "1: tags such as !!binary are not accepted"},
		{"tag of a mapping", "limits:", "limits: !!omap", "7: tags"},
		{"second document", "on: true", "---\non: true", "2: a second document"},
		{"broken", "web", "[", "2: "},
		{"broken after the document", baseline, "name: web\n---\n\t[", "3: "},
		{"unknown anchor", "web", "*a", "1: unknown anchor 'a' referenced"},
		{"list", baseline, "- a\n", `1: a file must be a mapping of "word: value" lines, not a list`},
		{"null", baseline, "null\n", `1: a file must be a mapping of "word: value" lines, not nothing`},
		{"empty", baseline, "# nothing\n", "1: the file is empty"},
		{"too long", baseline, strings.Repeat("# long\n", MaxFile/7+1), "1: longer than 1048576 bytes"},
	} {
		if !strings.Contains(baseline, c.old) {
			t.Fatalf("%s: the baseline has no %q", c.about, c.old)
		}
		got, err := read(strings.Replace(baseline, c.old, c.new, 1))
		if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:"+c.want) {
			t.Errorf("%s: got %+v, %v, want an error that starts %q", c.about, got, err, c.want)
		}
	}
}

func TestReportsEveryError(t *testing.T) {
	_, err := read(strings.NewReplacer("web", "1", "true", "yes", "90s", "1d", "total", "totl").Replace(baseline))
	if err == nil {
		t.Fatal("got no error")
	}
	var at []string
	for line := range strings.Lines(err.Error()) {
		at = append(at, strings.SplitN(line, ":", 3)[1])
	}
	if got := strings.Join(at, " "); got != "1 2 5 8" {
		t.Errorf("got errors on lines %s: %v", got, err)
	}
}

func TestErrorsWrap(t *testing.T) {
	r, root, err := Parse("f.yaml", []byte("a: b"))
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("cause")
	r.Errorf(root, "a: %w", cause)
	if got := r.Err(); !errors.Is(got, cause) || got.Error() != "f.yaml:1: a: cause" {
		t.Errorf("got %v", got)
	}
}

// A password in the wrong place is not shown.
func TestKindShowsNoValue(t *testing.T) {
	for _, text := range []string{"limits: hunter2", "modes: hunter2", "limits: [hunter2]", "name: {a: hunter2}"} {
		if _, err := read(text); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	seeds := []string{
		baseline, "", "# nothing", "null", "a: &a [*a]", "? [x]\n: y", "<<: {name: web}", "%YAML 1.1\n---\nname: a", "!!binary aGk=", "{name: [}",
		"share: .nan", "name: |\n  a\n  b", "\x00", "\xff\xfe", "a: *b", "--- a\n--- b",
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		got, err := read(data)
		if err == nil {
			if got.Port < 0 || got.Port > 65535 || got.Age < 0 {
				t.Errorf("%q: got %+v", data, got)
			}
			return
		}
		for line := range strings.Lines(err.Error()) {
			if !strings.HasPrefix(line, "f.yaml:") {
				t.Errorf("error without file and line: %q", line)
			}
		}
	})
}
