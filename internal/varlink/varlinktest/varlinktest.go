// Package varlinktest holds Go types to the interface file that specifies them,
// so that the two cannot drift apart. It is for tests.
//
// Start at [Check]. It compares names, types and order; it cannot compare what a member
// means.
package varlinktest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Interface is an interface file and what stands for it in Go.
type Interface struct {
	Name        string
	Description string           // the text of the file
	Methods     map[string]Types // by the qualified name: whatever the file has
	Errors      []string         // the qualified names
	Parameters  any              // of every error
	File        string           // the Go file with the constants
	Constants   []string         // those that are neither a method nor the interface
}

// Types are the parameters of a method and its reply, in turn.
type Types [2]any

// Check reports every difference.
func Check(t testing.TB, i Interface) {
	t.Helper()
	d, err := ParseInterface(i.Description)
	if err != nil {
		t.Fatal(err)
	}
	c := checker{t, d}
	if d.Name != i.Name {
		t.Errorf("the file describes %s, want %s", d.Name, i.Name)
	}
	c.methods(i)
	c.errors(i)
	c.names(i)
}

type checker struct {
	testing.TB
	*InterfaceDescription
}

func (c checker) methods(i Interface) {
	c.Helper()
	for _, m := range c.InterfaceDescription.Methods {
		types, ok := i.Methods[i.Name+"."+m.Name]
		if !ok {
			c.Errorf("method %s has no Go types", m.Name)
			continue
		}
		c.compare(m.Name+" in", reflect.TypeOf(types[0]), m.In)
		c.compare(m.Name+" out", reflect.TypeOf(types[1]), m.Out)
	}
	for name := range i.Methods {
		if _, ok := c.Method(strings.TrimPrefix(name, i.Name+".")); !ok {
			c.Errorf("%s is not in the interface file", name)
		}
	}
}

// errors also holds each error to the one Go type of their parameters. Those
// without retryAfterMS lack that member alone.
func (c checker) errors(i Interface) {
	c.Helper()
	names := map[string]bool{}
	for _, name := range i.Errors {
		names[name] = true
	}
	parameters := reflect.TypeOf(i.Parameters)
	for _, e := range c.InterfaceDescription.Errors {
		if !names[i.Name+"."+e.Name] {
			c.Errorf("nothing stands for the error %s", e.Name)
		}
		want := e.Parameters
		if n := len(want.Members); n == parameters.NumField()-1 {
			last := Type{Kind: Int}
			want.Members = append(want.Members[:n:n], Member{Name: "retryAfterMS", Type: Type{Kind: Optional, Element: &last}})
		}
		c.compare(e.Name, parameters, want)
	}
	if got := len(c.InterfaceDescription.Errors); got != len(names) {
		c.Errorf("the file has %d errors, and %d are known", got, len(names))
	}
}

// names wants every constant to be a method or the interface, and every type that
// the file names to be in use, and so compared already.
func (c checker) names(i Interface) {
	c.Helper()
	others := map[string]bool{i.Name: true}
	for _, name := range i.Constants {
		others[name] = true
	}
	constants := 0
	for _, value := range constantsOf(c.TB, i.File, i.Name) {
		constants++
		if _, ok := i.Methods[value]; !ok && !others[value] {
			c.Errorf("the constant %s is no method", value)
		}
	}
	if want := len(i.Methods) + len(others); constants != want {
		c.Errorf("%d constants, want %d", constants, want)
	}
	for _, named := range c.Types {
		if strings.Count(i.Description, named.Name+",")+strings.Count(i.Description, named.Name+")")+strings.Count(i.Description, named.Name+"\n") == 0 {
			c.Errorf("type %s is used nowhere", named.Name)
		}
	}
}

// compare holds a struct to the members that the file gives it, in their order.
func (c checker) compare(where string, got reflect.Type, want Type) {
	c.Helper()
	if got.NumField() != len(want.Members) {
		c.Errorf("%s: %s has %d members, the file %d", where, got, got.NumField(), len(want.Members))
		return
	}
	for i, m := range want.Members {
		f := got.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != m.Name {
			c.Errorf("%s: member %d is %s, the file has %s", where, i, name, m.Name)
			continue
		}
		text := c.wireType(where+"."+name, f.Type, m.Type)
		if options == "omitempty" && f.Type.Kind() != reflect.Pointer {
			text = "?" + text
		}
		if text != m.Type.String() {
			c.Errorf("%s.%s: got %s, the file has %s", where, name, text, m.Type)
		}
	}
}

// wireType is the type of an interface file that a Go type is encoded as. It goes
// into the types that the file names.
func (c checker) wireType(where string, got reflect.Type, want Type) string {
	c.Helper()
	switch {
	case got == reflect.TypeFor[time.Time](), got == reflect.TypeFor[[]byte](), got.Kind() == reflect.String:
		return "string"
	case got.Kind() == reflect.Bool:
		return "bool"
	case got.Kind() == reflect.Float64:
		return "float"
	case got.Kind() >= reflect.Int && got.Kind() <= reflect.Uint64:
		return "int"
	case got.Kind() == reflect.Pointer:
		return "?" + c.wireType(where, got.Elem(), element(want))
	case got.Kind() == reflect.Slice:
		return "[]" + c.wireType(where, got.Elem(), element(want))
	case got.Kind() == reflect.Struct:
		named, ok := c.Type(got.Name())
		if !ok {
			c.Errorf("%s: the file has no type %s", where, got.Name())
			return got.Name()
		}
		c.compare(got.Name(), got, named)
		return got.Name()
	}
	c.Errorf("%s: %s has no type on the wire", where, got)
	return got.String()
}

// element is what an optional or a list is of.
func element(t Type) Type {
	for t.Kind == Optional && t.Element.Kind == Array {
		t = *t.Element // an optional list, written without a pointer
	}
	if t.Element == nil {
		return t
	}
	return *t.Element
}

// constantsOf returns the values of the string constants in a Go file, which are
// literals or Interface and a literal.
func constantsOf(t testing.TB, file, name string) (values []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, value := range spec.Values {
			prefix := ""
			if sum, ok := value.(*ast.BinaryExpr); ok {
				prefix, value = name, sum.Y
			}
			literal, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, prefix+literal)
		}
		return true
	})
	return values
}
