package varlink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

type nested struct {
	Address string `json:"address"`
	Port    int    `json:"port,omitempty"`
}

type embedded struct {
	Inside string `json:"inside,omitempty"`
}

// everything has a member of each form that an interface has.
type everything struct {
	Text    string            `json:"text"`
	Bytes   []byte            `json:"bytes"`
	Number  int               `json:"number"`
	When    time.Time         `json:"when"`
	Servers []nested          `json:"servers"`
	Chain   [][]byte          `json:"chain,omitempty"`
	One     *nested           `json:"one,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Raw     json.RawMessage   `json:"raw,omitempty"`
	Any     any               `json:"any,omitempty"`
	Ignored string            `json:"-"`
	embedded
}

// baseline is decoded without complaint; each case changes one member of it.
var baseline = map[string]string{
	"text": `"hi"`, "bytes": `"AAECAw=="`, "number": `7`, "when": `"2026-01-02T03:04:05Z"`,
	"servers": `[{"address":"a:1"},{"address":"b:2","port":2}]`,
}

// with returns the baseline as JSON with members added, or taken out where the
// value is empty.
func with(changes map[string]string) string {
	var members []string
	for _, from := range []map[string]string{baseline, changes} {
		for name, value := range from {
			if _, changed := changes[name]; (changed && value != changes[name]) || value == "" {
				continue
			}
			members = append(members, fmt.Sprintf("%q:%s", name, value))
		}
	}
	return "{" + strings.Join(members, " ,\n") + "}"
}

func TestUnmarshalTakes(t *testing.T) {
	tests := map[string]map[string]string{
		"baseline": {}, "chain": {"chain": `["AA==","AQ=="]`}, "chain of nothing": {"chain": "[]"},
		"pointer": {"one": `{"address":"x"}`}, "null pointer": {"one": "null"}, "null optional": {"labels": "null", "chain": "null"},
		"map": {"labels": `{"a":"b","c":"d"}`}, "raw": {"raw": `{"x":{"x":[1,-2.5e3,true,null,""]}}`},
		"any": {"any": `{"x":[{"y":1},null,"\\\""]}`}, "embedded": {"inside": `"x"`},
		"escapes": {"text": `"\u0041\"\\"`}, "empty list": {"servers": `[ ]`},
	}
	for name, changes := range tests {
		var got, want everything
		text := with(changes)
		if err := Unmarshal([]byte(text), &got); err != nil {
			t.Errorf("%s: %s: %v", name, text, err)
		}
		if err := json.Unmarshal([]byte(text), &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v (%v)", name, got, want, err)
		}
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	deep := strings.Repeat("[", 32) + strings.Repeat("]", 32)
	tests := []struct {
		name    string
		changes map[string]string
		member  string
	}{
		{"unknown", map[string]string{"Text ": `""`}, "Text "},
		{"other capitals", map[string]string{"Text": `""`}, "Text"},
		{"folding letter", map[string]string{"text": "", "te\u017ft": `""`}, "te\u017ft"},
		{"ignored", map[string]string{"Ignored": `""`}, "Ignored"},
		{"missing", map[string]string{"text": ""}, "text"},
		{"null", map[string]string{"text": "null"}, "text"},
		{"null list", map[string]string{"servers": "null"}, "servers"},
		{"null in list", map[string]string{"chain": "[null]"}, "chain"},
		{"null in map", map[string]string{"labels": `{"a":null}`}, "labels.a"},
		{"null time", map[string]string{"when": "null"}, "when"},
		{"bad time", map[string]string{"when": `"today"`}, "when"},
		{"bad base64", map[string]string{"bytes": `"*"`}, "bytes"},
		{"numbers for bytes", map[string]string{"bytes": "[1,2]"}, "bytes"},
		{"string for number", map[string]string{"number": `"7"`}, "number"},
		{"fraction", map[string]string{"number": "7.5"}, "number"},
		{"too big", map[string]string{"number": "1e30"}, "number"},
		{"nested unknown", map[string]string{"servers": `[{"address":"a","x":1}]`}, "servers.x"},
		{"nested missing", map[string]string{"servers": `[{"address":"a"},{}]`}, "servers.address"},
		{"nested twice", map[string]string{"one": `{"address":"a","address":"a"}`}, "one.address"},
		{"nested type", map[string]string{"one": `{"address":1}`}, "one.address"},
		{"twice in map", map[string]string{"labels": `{"a":"","a":""}`}, "labels.a"},
		{"twice in anything", map[string]string{"any": `[{"a":1,"a":1}]`}, "any.a"},
		{"twice by an escape", map[string]string{"any": `{"a":1,"\u0061":1}`}, "any.a"},
		{"deep anything", map[string]string{"any": deep}, "any"},
		{"deep raw", map[string]string{"raw": deep}, "raw"},
	}
	for _, test := range tests {
		err := Unmarshal([]byte(with(test.changes)), &everything{})
		want := NewError(InvalidParameter, "parameter", test.member)
		var got *Error
		if !errors.As(err, &got) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", test.name, err, want)
		}
	}
}

func TestUnmarshalRefusesText(t *testing.T) {
	for _, text := range []string{"", " ", "{", "{}{}", "{}x", `{"text"}`, "\xff", "nul", `{"text":"` + "\xff" + `"}`} {
		var named *Error
		if err := Unmarshal([]byte(text), &everything{}); err == nil || errors.As(err, &named) {
			t.Errorf("%q: got %v, want an error without a member", text, err)
		}
	}
	for _, text := range []string{"null", "[]", "1", `""`} {
		if err := Unmarshal([]byte(text), &everything{}); err == nil {
			t.Errorf("%q was taken for a struct", text)
		}
	}
}

// Whatever Unmarshal takes for a struct has each member once and by its exact
// name: it encodes again to the same set of names.
func FuzzUnmarshal(f *testing.F) {
	seeds := []string{with(nil), with(map[string]string{"any": `{"x":[{"y":1},null,"\\\""]}`, "one": "null"}), `{"text":1}`, "{", "null"}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got everything
		if Unmarshal(data, &got) != nil {
			return
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(&everything{}); err != nil {
			t.Fatalf("encoding/json refuses %q: %v", data, err)
		}
		count := strings.Count(string(data), `"text"`)
		if escaped := bytes.IndexByte(data, '\\') >= 0 || got.Any != nil || got.Raw != nil || got.Labels != nil; count != 1 && !escaped && got.Text != "text" {
			t.Fatalf("%q has text %d times", data, count)
		}
		var generic any
		if err := Unmarshal(data, &generic); err != nil && got.Raw == nil {
			t.Fatalf("%q was taken for a struct but not for anything: %v", data, err)
		}
	})
}
