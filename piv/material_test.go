package piv

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"strings"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

func newPublic(t testing.TB) []byte {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func newMaterial(t testing.TB) keys.Material {
	t.Helper()
	k := &key{public: newPublic(t), record: record{
		Serial: 7, Slot: "9a", PINPolicy: keys.PolicyOnce, TouchPolicy: keys.PolicyNever, Firmware: "5.4.3",
	}}
	m, err := k.material()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMaterial: what is written is read, also with white space; everything else is
// refused.
func TestMaterial(t *testing.T) {
	m := newMaterial(t)
	if k, err := parse(m); err != nil || k.Serial != 7 || !k.wantsPIN() || k.algorithm != keys.ES256 {
		t.Fatalf("got %+v, %v", k, err)
	}
	spaced := m
	spaced.Device = json.RawMessage(strings.ReplaceAll(string(m.Device), ",", ",\n  "))
	a, err := parse(spaced)
	if err != nil {
		t.Fatalf("with white space: %v", err)
	}
	if b, _ := parse(m); a.id != b.id {
		t.Error("white space makes it another key")
	}
	replace := func(old, new string) func(*keys.Material) {
		return func(m *keys.Material) { m.Device = json.RawMessage(strings.Replace(string(m.Device), old, new, 1)) }
	}
	for name, change := range map[string]func(*keys.Material){
		"another backend":       func(m *keys.Material) { m.Backend = "tpm" },
		"no place":              func(m *keys.Material) { m.Card = nil },
		"another card":          func(m *keys.Material) { m.Card.Serial = 8 },
		"another slot":          func(m *keys.Material) { m.Card.Slot = "9c" },
		"another PIN policy":    func(m *keys.Material) { m.Card.PINPolicy = keys.PolicyNever },
		"another touch policy":  func(m *keys.Material) { m.Card.TouchPolicy = keys.PolicyAlways },
		"attested without":      func(m *keys.Material) { m.Card.Attested = true },
		"no PIN":                func(m *keys.Material) { m.PIN = false },
		"imported":              func(m *keys.Material) { m.Imported = true },
		"no key":                func(m *keys.Material) { m.Public = nil },
		"record: card":          replace(`"serial":7`, `"serial":8`),
		"record: no card":       replace(`"serial":7`, `"serial":0`),
		"record: slot":          replace(`"9a"`, `"9b"`),
		"record: policy":        replace(`"never"`, `"cached"`),
		"record: no policy":     replace(`"never"`, `"sometimes"`),
		"record: firmware":      replace(`5.4.3`, `5.4`),
		"record: unknown":       replace(`{`, `{"colour":"red",`),
		"record: twice":         replace(`{`, `{"serial":7,`),
		"record: capitals":      replace(`"serial"`, `"Serial"`),
		"record: two":           replace(`}`, `}{}`),
		"record: one statement": replace(`}`, `,"attestation":["AAAA"]}`),
		"record: none":          func(m *keys.Material) { m.Device = nil },
		"record: too long":      func(m *keys.Material) { m.Device = json.RawMessage(strings.Repeat(" ", maxRecord+1)) },
	} {
		bad := newMaterial(t)
		change(&bad)
		if _, err := parse(bad); fault.KindOf(err) != fault.BadRequest {
			t.Errorf("%s: got %v, want bad-request", name, err)
		}
	}
}

func FuzzMaterial(f *testing.F) {
	m := newMaterial(f)
	seeds := [][]byte{m.Device, []byte(`{}`), []byte(`null`), []byte(`{"serial":7,"slot":"9a","attestation":["AA==","AA=="]}`)}
	if _, err := parse(m); len(seeds) == 0 || err != nil {
		f.Fatalf("the seeds: %v", err)
	}
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, device []byte) {
		m := m
		m.Device = device
		k, err := parse(m)
		if err != nil {
			if fault.KindOf(err) != fault.BadRequest {
				t.Errorf("got %v, want bad-request", err)
			}
			return
		}
		again, err := k.material()
		if err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, device); err != nil || !bytes.Equal(compact.Bytes(), again.Device) {
			t.Errorf("%q is written as %q", device, again.Device)
		}
	})
}

// TestFile: what Export writes is read, and nothing else is.
func TestFile(t *testing.T) {
	want := reference{7, "9a", newPublic(t)}
	file := want.encode()
	got, err := parseFile(file)
	if err != nil || got.serial != 7 || got.slot != "9a" || !bytes.Equal(got.public, want.public) {
		t.Fatalf("got %+v, %v", got, err)
	}
	replace := func(old, new string) []byte { return bytes.Replace(file, []byte(old), []byte(new), 1) }
	for name, bad := range map[string][]byte{
		"nothing": nil, "no PEM": []byte("x"), "another type": bytes.ReplaceAll(file, []byte("HOLDFAST PIV"), []byte("PRIVATE")),
		"no card": replace("Card: 7\n", ""), "card 0": replace("Card: 7", "Card: 0"), "card 07": replace("Card: 7", "Card: 07"),
		"a card that is too long": replace("Card: 7", "Card: 4294967296"), "no slot": replace("Slot: 9a\n", ""), "slot f9": replace("Slot: 9a", "Slot: f9"),
		"another header": replace("Slot: 9a", "Slot: 9a\nPIN: 123456"), "two": append(bytes.Clone(file), file...), "text before": append([]byte("hello\n"), file...),
		"too long": append(bytes.Clone(file), bytes.Repeat([]byte("\n"), maxFile)...),
		"no key":   reference{7, "9a", []byte("no key")}.encode(),
	} {
		if _, err := parseFile(bad); fault.KindOf(err) != fault.BadRequest {
			t.Errorf("%s: got %v, want bad-request", name, err)
		}
	}
}

func FuzzFile(f *testing.F) {
	good := reference{12345678, "82", newPublic(f)}.encode()
	if _, err := parseFile(good); err != nil {
		f.Fatalf("the seed: %v", err)
	}
	for _, seed := range [][]byte{good, nil, good[:len(good)/2], []byte("-----BEGIN HOLDFAST PIV KEY-----\nCard: 1\nSlot: 9a\n\n-----END HOLDFAST PIV KEY-----\n")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := parseFile(file)
		if err != nil {
			if fault.KindOf(err) != fault.BadRequest {
				t.Errorf("got %v, want bad-request", err)
			}
			return
		}
		if again, err := parseFile(r.encode()); err != nil || again.serial != r.serial || again.slot != r.slot || !bytes.Equal(again.public, r.public) {
			t.Errorf("%q: read again %+v, %v", file, again, err)
		}
	})
}
