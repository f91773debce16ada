package varlink

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep objects and arrays may nest in a message. The agent's
// interface needs five levels.
const maxDepth = 32

// Unmarshal stores the JSON value data in the value that into points to, as
// encoding/json does, and refuses what that would let pass: members that the
// struct does not have, that are spelled with other capitals or given twice, null
// for what is not optional, missing members that are not optional, arrays for
// bytes, more than 32 levels, and text that is not UTF-8. A member is optional,
// the question mark of an interface file, when it is a pointer or has omitempty.
// Values that decode themselves, and json.RawMessage, are only searched for depth.
//
// A refusal is an *Error: InvalidParameter with the path of the member, as
// servers.address. Data that is not JSON gives another error.
func Unmarshal(data []byte, into any) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	if err := json.Unmarshal(data, into); err != nil {
		return refusal(data, into, err)
	}
	w := walker{data: data, known: map[reflect.Type][]member{}}
	t := reflect.TypeOf(into).Elem()
	if w.null() && !nullable(t) {
		return invalid("")
	}
	return w.value(t, "")
}

// refusal turns an error of encoding/json into one that names the member.
func refusal(data []byte, into any, err error) error {
	var syntax *json.SyntaxError
	var misuse *json.InvalidUnmarshalError
	if errors.As(err, &syntax) || errors.As(err, &misuse) {
		return err
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return invalid(mismatch.Field)
	}
	return invalid(culprit(data, reflect.TypeOf(into).Elem()))
}

// culprit finds the member whose own decoding fails (a time, or base64), which
// encoding/json does not name.
func culprit(data []byte, t reflect.Type) string {
	var parts map[string]json.RawMessage
	if t.Kind() != reflect.Struct || json.Unmarshal(data, &parts) != nil {
		return ""
	}
	for _, m := range members(t) {
		part, ok := parts[m.name]
		if ok && json.Unmarshal(part, reflect.New(m.typ).Interface()) != nil {
			return m.name
		}
	}
	return ""
}

// walker goes through JSON that encoding/json has accepted for a type, so it need
// not look for syntax errors, nor for mismatches of the two.
type walker struct {
	data  []byte
	pos   int
	depth int
	known map[reflect.Type][]member
}

// value checks the value that comes next against t; a nil type takes anything.
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

// nested runs inside, which goes past the closing bracket.
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

// skip passes over a value without looking into it, except for its depth.
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

// closes passes over a comma or the bracket, and says whether it was the bracket.
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

// scalar passes over a string, a number or a word.
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

func (w *walker) null() bool {
	w.space()
	return w.data[w.pos] == 'n'
}

func (w *walker) space() {
	for w.pos < len(w.data) && strings.IndexByte(" \t\r\n", w.data[w.pos]) >= 0 {
		w.pos++
	}
}

func (w *walker) members(t reflect.Type) []member {
	if _, ok := w.known[t]; !ok {
		w.known[t] = members(t)
	}
	return w.known[t]
}

// member is one member of an object that a struct stands for.
type member struct {
	name     string
	typ      reflect.Type
	optional bool
}

// members lists the members of a struct by the rules of encoding/json. Structs
// that are embedded without a name of their own count as their members.
func members(t reflect.Type) []member {
	var all []member
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			all = append(all, members(f.Type)...)
		case f.IsExported() && name != "-":
			if name == "" {
				name = f.Name
			}
			optional := nullable(f.Type) || strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
			all = append(all, member{name, f.Type, optional})
		}
	}
	return all
}

func nullable(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface
}

// opaque types decode themselves.
func opaque(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// isObject says that valid JSON is an object.
func isObject(data []byte) bool {
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{'
}
