package varlink

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

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

// nullable types have a value of their own for null.
func nullable(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface
}

// opaque types decode themselves.
func opaque(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
