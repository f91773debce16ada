package varlink

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"unicode/utf8"
)

// maxDepth is how deep objects and arrays may nest in a message. The agent's
// interface needs five levels.
const maxDepth = 32

// Unmarshal stores the JSON value data in the value that into points to, as
// encoding/json does, and rejects what encoding/json accepts: members that the
// struct does not have, that are spelled with other capitals or given twice, null
// for a member that is not optional, missing members that are not optional, arrays for
// bytes, more than 32 levels, and text that is not UTF-8. A member is optional,
// the question mark of an interface file, when it is a pointer or has omitempty.
// Only the depth of values that decode themselves, and of json.RawMessage, is checked.
//
// The error for rejected data is an *Error: InvalidParameter with the path of the member, as
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

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// isObject reports whether valid JSON is an object.
func isObject(data []byte) bool {
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{'
}
