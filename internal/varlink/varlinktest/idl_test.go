package varlinktest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sampleInterface = `# A comment
interface org.example.sample-1

type T ( a: bool, b_c: ?int, # here too
  c: []float, d: [string]?string, e: ?[]T, f: object, g: [string](), h: (x: int), i: ( one, two ) )
type E(one, two)
type Empty ()
method M(t: T)->(e: E)
error Bad (message: string)
`

func TestParseInterface(t *testing.T) {
	d, err := ParseInterface(sampleInterface)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(d.Name, d.Types, d.Methods, d.Errors)
	want := "org.example.sample-1" +
		"[{T (a: bool, b_c: ?int, c: []float, d: [string]?string, e: ?[]T, f: object, g: [string](), h: (x: int), i: (one, two))}" +
		" {E (one, two)} {Empty ()}] [{M (t: T) (e: E)}] [{Bad (message: string)}]"
	if got != want {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
	if m, ok := d.Method("M"); !ok || m.Out.Members[0].Name != "e" {
		t.Errorf("method M: got %v, %v", m, ok)
	}
	if _, ok := d.Method("N"); ok {
		t.Error("there is a method N")
	}
	if e, ok := d.Type("E"); !ok || len(e.Words) != 2 {
		t.Errorf("type E: got %v, %v", e, ok)
	}
}

// interfaceFiles reads the interface files of this module, by the interface's name.
func interfaceFiles(t testing.TB) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, path := range []string{
		"../org.varlink.service.varlink", "../../agentwire/io.holdfast.Agent.varlink", "../../brokerwire/io.holdfast.Broker.varlink",
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimSuffix(filepath.Base(path), ".varlink")] = string(text)
	}
	return files
}

func TestParseInterfaceFiles(t *testing.T) {
	for want, text := range interfaceFiles(t) {
		d, err := ParseInterface(text)
		if err != nil {
			t.Errorf("%s: %v", want, err)
		} else if d.Name != want || len(d.Methods) == 0 || len(d.Errors) == 0 {
			t.Errorf("got %s with %d methods and %d errors, want %s", d.Name, len(d.Methods), len(d.Errors), want)
		}
	}
}

func TestParseInterfaceRefuses(t *testing.T) {
	tests := []struct{ name, old, new, want string }{
		{"no interface", "interface", "iface", `line 2: got "iface", want "interface"`},
		{"name without a dot", "org.example.sample-1", "sample", `line 2: "sample" is no name of an interface`},
		{"name with an end", "sample-1", "sample-", `line 2: "org.example.sample-" is no name of an interface`},
		{"small type", "type E", "type e", `line 6: "e" is no name of a type`},
		{"small method", "method M", "method m", `line 8: "m" is no name of a method`},
		{"member of two underscores", "b_c", "b__c", `line 4: "b__c" is no name of a member`},
		{"unknown word", "error Bad", "event Bad", `line 9: got "event", want type, method or error`},
		{"missing arrow", "->", "=>", `line 8: got "=", want "->"`},
		{"missing output", "->(e: E)", "->", `line 9: got "error", want "("`},
		{"missing comma", "a: bool,", "a: bool", `line 4: got "b_c", want ","`},
		{"trailing comma", "(one, two)", "(one,)", `line 6: ")" is no name of a member`},
		{"mixed", "(one, two)", "(one, two: int)", `line 6: got ":", want ","`},
		{"enum of a method", "->(e: E)", "->(e)", `line 9: got an enum, want a struct`},
		{"twice optional", "?int", "??int", `line 4: twice optional`},
		{"map of ints", "[string]?", "[int]?", `line 5: got "int", want "]"`},
		{"member twice", "b_c: ?int", "a: int", `line 4: a is there twice`},
		{"word twice", "(one, two)", "(one, one)", `line 6: one is there twice`},
		{"type twice", "type Empty", "type E", `E is defined twice`},
		{"type and error", "error Bad", "error E", `E is defined twice`},
		{"unknown type", "e: E", "e: F", `type F is not defined`},
		{"unknown type in a list", "?[]T", "?[]F", `type F is not defined`},
		{"no end", "string)", "string", `line 10: got "", want ","`},
		{"deep", "?int", strings.Repeat("[]", 40) + "int", `line 4: types nest deeper than 32`},
	}
	for _, test := range tests {
		text := strings.Replace(sampleInterface, test.old, test.new, 1)
		if _, err := ParseInterface(text); err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
	}
}

// print writes a description as an interface file.
func (d *InterfaceDescription) print() string {
	var b strings.Builder
	fmt.Fprintf(&b, "interface %s\n", d.Name)
	for _, t := range d.Types {
		fmt.Fprintf(&b, "type %s %s\n", t.Name, t.Type)
	}
	for _, m := range d.Methods {
		fmt.Fprintf(&b, "method %s%s -> %s\n", m.Name, m.In, m.Out)
	}
	for _, e := range d.Errors {
		fmt.Fprintf(&b, "error %s %s\n", e.Name, e.Parameters)
	}
	return b.String()
}

// FuzzParseInterface checks that a parsed interface, written again, parses to the same.
func FuzzParseInterface(f *testing.F) {
	seeds := []string{sampleInterface, "interface a.b\ntype A ()", "interface a.b method M"}
	for _, text := range interfaceFiles(f) {
		seeds = append(seeds, text)
	}
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseInterface(text)
		if err != nil {
			return
		}
		again, err := ParseInterface(d.print())
		if err != nil {
			t.Fatalf("%v in\n%s", err, d.print())
		}
		if again.print() != d.print() {
			t.Fatalf("got\n%s\nwant\n%s", again.print(), d.print())
		}
	})
}
