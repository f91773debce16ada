package tpm

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"os"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

func TestRecordIsStrict(t *testing.T) {
	b, _, _ := behind(t, false)
	asked := es256
	asked.Persistent = true
	m := create(t, b, asked)
	swap := func(old, new string) json.RawMessage {
		if !bytes.Contains(m.Device, []byte(old)) {
			t.Fatalf("the record has no %s: %s", old, m.Device)
		}
		return json.RawMessage(strings.Replace(string(m.Device), old, new, 1))
	}
	for name, device := range map[string]json.RawMessage{
		"empty":             nil,
		"not an object":     json.RawMessage(`[]`),
		"unknown member":    swap(`{"key"`, `{"color":"red","key"`),
		"doubled member":    swap(`{"key"`, `{"key":"x","key"`),
		"misspelt member":   swap(`"key"`, `"Key"`),
		"unknown in parent": swap(`"parent":{`, `"parent":{"x":1,`),
		"trailing data":     append(bytes.Clone(m.Device), "{}"...),
		"too long":          json.RawMessage(strings.Replace(string(m.Device), `"`, strings.Repeat(" ", maxRecord)+`"`, 1)),
		"no name":           swap(`"name":"000b`, `"name":"zz`),
		"handle elsewhere":  swap(`"handle":"0x81`, `"handle":"0x80`),
		"handle misspelt":   swap(`"handle":"0x8`, `"handle":"0X8`),
		"no key":            swap(`TSS2 PRIVATE KEY`, `TSS3 PRIVATE KEY`),
		"no template":       swap(`"template"`, `"templates"`),
	} {
		bad := m
		bad.Device = device
		if _, err := parseMaterial(bad); fault.KindOf(err) != fault.BadRequest {
			t.Errorf("%s: got %v, want bad-request", name, err)
		}
	}
	spaced := m
	var out bytes.Buffer
	if err := json.Indent(&out, m.Device, "", "  "); err != nil {
		t.Fatal(err)
	}
	spaced.Device = out.Bytes()
	if _, err := parseMaterial(spaced); err != nil {
		t.Errorf("an indented record: %v", err)
	}
}

func TestMaterialMustMatch(t *testing.T) {
	b, _, _ := behind(t, false)
	m, other := create(t, b, es256), create(t, b, es256)
	for name, change := range map[string]func(*keys.Material){
		"another public key": func(m *keys.Material) { m.Public = other.Public },
		"a PIN":              func(m *keys.Material) { m.PIN = true },
		"another backend":    func(m *keys.Material) { m.Backend = "piv" },
	} {
		bad := m
		change(&bad)
		if err := signs(soon(t), b, bad, p256); err == nil {
			t.Errorf("%s: it signs, loaded", name)
		}
		if _, err := parseMaterial(bad); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
	mustSign(t, b, m, p256)
}

func TestParentTemplateMustBeStorage(t *testing.T) {
	area, err := template(es256)
	if err != nil {
		t.Fatal(err)
	}
	if checkTemplate(tpm2.Marshal(area)) == nil {
		t.Error("a signing key was taken for a parent")
	}
	if err := checkTemplate(standardParent().template); err != nil {
		t.Error(err)
	}
	if checkTemplate(append(standardParent().template, 0)) == nil {
		t.Error("a template with a byte too many was taken")
	}
}

// aRecord returns the device member of a key that some TPM made.
func aRecord(t testing.TB) []byte {
	t.Helper()
	record, err := os.ReadFile("testdata/record.json")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(record)
}

func FuzzRecord(f *testing.F) {
	good := aRecord(f)
	f.Add([]byte(good))
	f.Add([]byte(`{"key":"","parent":{"name":""}}`))
	f.Fuzz(func(t *testing.T, device []byte) {
		r, err := parseRecord(device)
		if err != nil {
			return
		}
		if _, err := parseKeyFile([]byte(r.Key)); err != nil && fault.KindOf(err) == fault.Internal {
			t.Errorf("got %v, want a named fault", err)
		}
		if _, err := r.Parent.ref(); err != nil && fault.KindOf(err) == fault.Internal {
			t.Errorf("got %v, want a named fault", err)
		}
	})
}

func FuzzKeyFile(f *testing.F) {
	r, err := parseRecord(aRecord(f))
	if err != nil {
		f.Fatal(err)
	}
	block, _ := pem.Decode([]byte(r.Key))
	if block == nil {
		f.Fatal("no seeds")
	}
	f.Add(block.Bytes)
	f.Fuzz(func(t *testing.T, der []byte) {
		k, err := parseKeyFile(pem.EncodeToMemory(&pem.Block{Type: "TSS2 PRIVATE KEY", Bytes: der}))
		if err != nil {
			if fault.KindOf(err) == fault.Internal {
				t.Errorf("got %v, want a named fault", err)
			}
			return
		}
		if again, err := parseKeyFile(k.file.Bytes()); err != nil || !bytes.Equal(again.name, k.name) {
			t.Errorf("the key does not survive a round trip: %v", err)
		}
	})
}
