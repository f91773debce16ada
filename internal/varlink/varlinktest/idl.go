package varlinktest

import (
	"fmt"
	"slices"
	"strings"
)

// InterfaceDescription is the content of an interface file, in the order of the file
// (https://varlink.org/Interface-Definition). Comments are not kept.
type InterfaceDescription struct {
	Name    string
	Types   []TypeDescription
	Methods []MethodDescription
	Errors  []ErrorDescription
}

// TypeDescription is a named type.
type TypeDescription struct {
	Name string
	Type Type // a struct or an enum
}

// MethodDescription is a method.
type MethodDescription struct {
	Name    string
	In, Out Type // structs
}

// ErrorDescription is an error.
type ErrorDescription struct {
	Name       string
	Parameters Type // a struct
}

// Kind says what a Type is.
type Kind int

// The kinds of types. Bool to Object are the built-in ones; Optional, Array and
// Map have an element; Named refers to a type of the interface.
const (
	Bool Kind = iota + 1
	Int
	Float
	String
	Object
	Optional
	Array
	Map
	Struct
	Enum
	Named
)

var builtin = [...]string{Bool: "bool", Int: "int", Float: "float", String: "string", Object: "object"}

// Type is a type of an interface file.
type Type struct {
	Kind    Kind
	Element *Type    // of an Optional, an Array or a Map
	Members []Member // of a Struct
	Words   []string // of an Enum
	Name    string   // of a Named
}

// Member is one member of a struct.
type Member struct {
	Name string
	Type Type
}

// String returns the type as an interface file has it: ?[]string.
func (t Type) String() string {
	switch t.Kind {
	case Optional:
		return "?" + t.Element.String()
	case Array:
		return "[]" + t.Element.String()
	case Map:
		return "[string]" + t.Element.String()
	case Named:
		return t.Name
	case Enum:
		return "(" + strings.Join(t.Words, ", ") + ")"
	case Struct:
		members := make([]string, len(t.Members))
		for i, m := range t.Members {
			members[i] = m.Name + ": " + m.Type.String()
		}
		return "(" + strings.Join(members, ", ") + ")"
	}
	return builtin[t.Kind]
}

// Method returns the method with that name, without the interface's.
func (d *InterfaceDescription) Method(name string) (MethodDescription, bool) {
	i := slices.IndexFunc(d.Methods, func(m MethodDescription) bool { return m.Name == name })
	if i < 0 {
		return MethodDescription{}, false
	}
	return d.Methods[i], true
}

// Type returns the named type.
func (d *InterfaceDescription) Type(name string) (Type, bool) {
	i := slices.IndexFunc(d.Types, func(t TypeDescription) bool { return t.Name == name })
	if i < 0 {
		return Type{}, false
	}
	return d.Types[i].Type, true
}

// ParseInterface parses the text of an interface file. Every name must be unique,
// and every type that is named must be there. Errors name the line.
func ParseInterface(text string) (*InterfaceDescription, error) {
	p := &idlParser{text: text, line: 1, names: nameForms()}
	p.next()
	d := &InterfaceDescription{}
	p.word("interface")
	d.Name = p.interfaceName()
	for p.err == nil && p.token != "" {
		p.definition(d)
	}
	if p.err == nil {
		p.err = d.check()
	}
	if p.err != nil {
		return nil, p.err
	}
	return d, nil
}

// check finds names given twice and types that do not exist.
func (d *InterfaceDescription) check() error {
	names := map[string]bool{}
	for _, name := range d.names() {
		if names[name] {
			return fmt.Errorf("%s is defined twice", name)
		}
		names[name] = true
	}
	for _, t := range d.all() {
		if err := d.resolve(t); err != nil {
			return err
		}
	}
	return nil
}

// names lists the names that must differ: types, methods and errors share one
// space.
func (d *InterfaceDescription) names() (names []string) {
	for _, t := range d.Types {
		names = append(names, t.Name)
	}
	for _, m := range d.Methods {
		names = append(names, m.Name)
	}
	for _, e := range d.Errors {
		names = append(names, e.Name)
	}
	return names
}

// all lists the types at the top of every definition.
func (d *InterfaceDescription) all() (types []Type) {
	for _, t := range d.Types {
		types = append(types, t.Type)
	}
	for _, m := range d.Methods {
		types = append(types, m.In, m.Out)
	}
	for _, e := range d.Errors {
		types = append(types, e.Parameters)
	}
	return types
}

// resolve finds a type that t names, however deep inside, and that does not exist.
func (d *InterfaceDescription) resolve(t Type) error {
	if t.Kind == Named {
		if _, ok := d.Type(t.Name); !ok {
			return fmt.Errorf("type %s is not defined", t.Name)
		}
	}
	if t.Element != nil {
		return d.resolve(*t.Element)
	}
	for _, m := range t.Members {
		if err := d.resolve(m.Type); err != nil {
			return err
		}
	}
	return nil
}
