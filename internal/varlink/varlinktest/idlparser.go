package varlinktest

import (
	"fmt"
	"regexp"
	"strings"
)

// maxDepth is how deep types may nest.
const maxDepth = 32

// idlParser reads an interface file token by token. After the first error it stands
// still: token is empty and err says why.
type idlParser struct {
	text  string // what follows token
	line  int
	token string // empty at the end
	depth int
	err   error
	names names
}

// names are the forms of the specification's names. They are compiled when an
// interface file is read: tiny programs import this package and read none.
type names struct {
	interfaces, types, members *regexp.Regexp // types: methods and errors too
}

func nameForms() names {
	return names{
		interfaces: regexp.MustCompile(`^[A-Za-z](-*[A-Za-z0-9])*(\.[A-Za-z0-9](-*[A-Za-z0-9])*)+$`),
		types:      regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`),
		members:    regexp.MustCompile(`^[A-Za-z](_?[A-Za-z0-9])*$`),
	}
}

// wordBytes are the bytes of which words, names and numbers are made.
const wordBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

// fail keeps the first error. Without a token no rule continues.
func (p *idlParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("line %d: %s", p.line, fmt.Sprintf(format, args...))
	}
	p.token = ""
}

// next moves to the next token: a word, an arrow or one other character.
func (p *idlParser) next() {
	p.token = ""
	p.blank()
	if p.text == "" || p.err != nil {
		return
	}
	n := len(p.text) - len(strings.TrimLeft(p.text, wordBytes))
	switch {
	case strings.HasPrefix(p.text, "->"):
		n = 2
	case n == 0:
		n = 1
	case strings.Contains(p.text[:n], "->"):
		n = strings.Index(p.text[:n], "->")
	}
	p.token, p.text = p.text[:n], p.text[n:]
}

// blank passes over white space and comments.
func (p *idlParser) blank() {
	for p.text != "" {
		switch p.text[0] {
		case '\n':
			p.line++
		case ' ', '\t', '\r':
		case '#':
			end := strings.IndexByte(p.text, '\n')
			if end < 0 {
				end = len(p.text)
			}
			p.text = p.text[end:]
			continue
		default:
			return
		}
		p.text = p.text[1:]
	}
}

// word passes over a token that must come here.
func (p *idlParser) word(want string) {
	if p.token != want {
		p.fail("got %q, want %q", p.token, want)
		return
	}
	p.next()
}

// is passes over a token if it comes here.
func (p *idlParser) is(token string) bool {
	if p.token != token {
		return false
	}
	p.next()
	return true
}

// name passes over a name of the given form.
func (p *idlParser) name(form *regexp.Regexp, what string) string {
	name := p.token
	if !form.MatchString(name) {
		p.fail("%q is no name of %s", name, what)
		return ""
	}
	p.next()
	return name
}

func (p *idlParser) interfaceName() string { return p.name(p.names.interfaces, "an interface") }

// definition reads one type, method or error.
func (p *idlParser) definition(d *InterfaceDescription) {
	switch {
	case p.is("type"):
		t := TypeDescription{Name: p.name(p.names.types, "a type"), Type: p.structOrEnum()}
		d.Types = append(d.Types, t)
	case p.is("method"):
		m := MethodDescription{Name: p.name(p.names.types, "a method"), In: p.structType()}
		p.word("->")
		m.Out = p.structType()
		d.Methods = append(d.Methods, m)
	case p.is("error"):
		e := ErrorDescription{Name: p.name(p.names.types, "an error"), Parameters: p.structType()}
		d.Errors = append(d.Errors, e)
	default:
		p.fail("got %q, want type, method or error", p.token)
	}
}

// structType reads what a method takes or gives, or an error carries: never an
// enum.
func (p *idlParser) structType() Type {
	t := p.structOrEnum()
	if t.Kind == Enum {
		p.fail("got an enum, want a struct")
	}
	return t
}

// structOrEnum reads a list in parentheses. The token after its first name
// decides between the two; an empty list is a struct.
func (p *idlParser) structOrEnum() Type {
	t := Type{Kind: Struct}
	p.word("(")
	if p.is(")") {
		return t
	}
	for p.err == nil {
		name := p.name(p.names.members, "a member")
		first := len(t.Members) == 0 && len(t.Words) == 0
		if first && p.token != ":" {
			t.Kind = Enum
		}
		p.element(&t, name)
		if p.is(")") {
			break
		}
		p.word(",")
	}
	return t
}

// element reads the rest of one member, or takes the name as a word of an enum.
func (p *idlParser) element(t *Type, name string) {
	if has(t, name) {
		p.fail("%s is there twice", name)
	}
	if t.Kind == Enum {
		t.Words = append(t.Words, name)
		return
	}
	p.word(":")
	t.Members = append(t.Members, Member{Name: name, Type: p.typ()})
}

func has(t *Type, name string) bool {
	for _, m := range t.Members {
		if m.Name == name {
			return true
		}
	}
	for _, w := range t.Words {
		if w == name {
			return true
		}
	}
	return false
}

// typ reads a type. A second question mark after the first is refused.
func (p *idlParser) typ() Type {
	if p.depth == maxDepth {
		p.fail("types nest deeper than %d", maxDepth)
		return Type{}
	}
	p.depth++
	defer func() { p.depth-- }()
	switch {
	case p.is("?"):
		element := p.typ()
		if element.Kind == Optional {
			p.fail("twice optional")
		}
		return Type{Kind: Optional, Element: &element}
	case p.is("["):
		return p.list()
	case p.token == "(":
		return p.structOrEnum()
	}
	return p.simple()
}

// list reads what follows the bracket of an array or a map.
func (p *idlParser) list() Type {
	kind := Array
	if p.is("string") {
		kind = Map
	}
	p.word("]")
	element := p.typ()
	return Type{Kind: kind, Element: &element}
}

// simple reads the name of a built-in type or of one of the interface.
func (p *idlParser) simple() Type {
	for kind := Bool; kind <= Object; kind++ {
		if p.is(builtin[kind]) {
			return Type{Kind: kind}
		}
	}
	return Type{Kind: Named, Name: p.name(p.names.types, "a type")}
}
