package varlink

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// walker walks through JSON that encoding/json has accepted for a type, so it does
// not check the syntax or the types of scalars.
type walker struct {
	data  []byte
	pos   int
	depth int
	known map[reflect.Type][]member
}

// value checks the next value against t; a nil type accepts any.
func (w *walker) value(t reflect.Type, path string) error {
	w.space()
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t != nil && t.Kind() == reflect.Interface {
		t = nil
	}
	if t != nil && opaque(t) {
		return w.skip(path)
	}
	switch w.data[w.pos] {
	case '{':
		return w.nested(path, func() error { return w.object(t, path) })
	case '[':
		return w.nested(path, func() error { return w.array(t, path) })
	}
	w.scalar()
	return nil
}

// nested runs inside, which reads past the closing bracket.
func (w *walker) nested(path string, inside func() error) error {
	if w.depth == maxDepth {
		return invalid(path)
	}
	w.depth++
	w.pos++
	err := inside()
	w.depth--
	return err
}

// object checks the members of an object: each known, once, of its type, and none
// missing that is required.
func (w *walker) object(t reflect.Type, path string) error {
	var fields []member
	if t != nil && t.Kind() == reflect.Struct {
		fields = w.members(t)
	}
	seen := make(map[string]bool, len(fields))
	for !w.closes('}') {
		name := w.name()
		typ, optional, ok := lookup(fields, t, name)
		inner := join(path, name)
		if !ok || seen[name] {
			return invalid(inner)
		}
		seen[name] = true
		if w.null() && !optional {
			return invalid(inner)
		}
		if err := w.value(typ, inner); err != nil {
			return err
		}
	}
	for _, f := range fields {
		if !f.optional && !seen[f.name] {
			return invalid(join(path, f.name))
		}
	}
	return nil
}

// lookup returns the type that a member of an object has: one of fields in a
// struct, the element's in a map, anything where the type is not known.
func lookup(fields []member, t reflect.Type, name string) (typ reflect.Type, optional, ok bool) {
	switch {
	case t == nil:
		return nil, true, true
	case t.Kind() == reflect.Map:
		return t.Elem(), nullable(t.Elem()), true
	}
	for _, f := range fields {
		if f.name == name {
			return f.typ, f.optional, true
		}
	}
	return nil, false, false
}

// array checks the elements of an array. encoding/json accepts an array of numbers
// for bytes, which are base64 here.
func (w *walker) array(t reflect.Type, path string) error {
	var element reflect.Type
	if t != nil {
		element = t.Elem()
	}
	if element != nil && element.Kind() == reflect.Uint8 {
		return invalid(path)
	}
	for !w.closes(']') {
		if w.null() && element != nil && !nullable(element) {
			return invalid(path)
		}
		if err := w.value(element, path); err != nil {
			return err
		}
	}
	return nil
}

// skip skips a value and checks only its depth.
func (w *walker) skip(path string) error {
	start := w.depth
	for {
		w.space()
		switch w.data[w.pos] {
		case '{', '[':
			if w.depth == maxDepth {
				return invalid(path)
			}
			w.depth++
			w.pos++
		case '}', ']':
			w.depth--
			w.pos++
		case ',', ':':
			w.pos++
		default:
			w.scalar()
		}
		if w.depth == start {
			return nil
		}
	}
}

// closes skips a comma or the bracket, and reports whether it was the bracket.
func (w *walker) closes(bracket byte) bool {
	w.space()
	switch w.data[w.pos] {
	case bracket:
		w.pos++
		return true
	case ',':
		w.pos++
	}
	return false
}

// name reads the name of a member and its colon.
func (w *walker) name() string {
	w.space()
	start := w.pos
	w.scalar()
	quoted := w.data[start:w.pos]
	w.space()
	w.pos++
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var name string
	if err := json.Unmarshal(quoted, &name); err != nil {
		return string(quoted)
	}
	return name
}

// scalar skips a string, a number or a word.
func (w *walker) scalar() {
	if w.data[w.pos] != '"' {
		for w.pos < len(w.data) && !strings.ContainsRune(",:]} \t\r\n", rune(w.data[w.pos])) {
			w.pos++
		}
		return
	}
	for w.pos++; w.data[w.pos] != '"'; w.pos++ {
		if w.data[w.pos] == '\\' {
			w.pos++
		}
	}
	w.pos++
}

// null reports whether the next value is null: no other begins with n.
func (w *walker) null() bool {
	w.space()
	return w.data[w.pos] == 'n'
}

func (w *walker) space() {
	for w.pos < len(w.data) && strings.IndexByte(" \t\r\n", w.data[w.pos]) >= 0 {
		w.pos++
	}
}

// members caches the members of a type while one message is checked, which may have
// many objects of that type.
func (w *walker) members(t reflect.Type) []member {
	if _, ok := w.known[t]; !ok {
		w.known[t] = members(t)
	}
	return w.known[t]
}
