package store

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/keys"
)

// signer returns one of the keys that all tests share; they are slow to make.
var signer = struct{ p256, p384, rsa2048, rsa1024, other func() crypto.Signer }{
	p256:    sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }),
	other:   sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }),
	p384:    sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)) }),
	rsa2048: sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 2048)) }),
	rsa1024: sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 1024)) }),
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func public(s crypto.Signer) []byte { return must(x509.MarshalPKIXPublicKey(s.Public())) }

// certificate returns a self-signed certificate of s, DER.
func certificate(s crypto.Signer) []byte {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour)}
	return must(x509.CreateCertificate(rand.Reader, template, template, s.Public(), s))
}

func certificatePEM(s crypto.Signer) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate(s)}))
}

// The certificates of good, which are slow to make too.
var (
	leaf  = sync.OnceValue(func() []byte { return certificate(signer.p256()) })
	other = sync.OnceValue(func() []byte { return certificate(signer.other()) })
	caPEM = sync.OnceValue(func() string { return certificatePEM(signer.other()) })
)

// good is a record with every member set, except those of RSA.
func good(name string) Record {
	return Record{
		Name:       name,
		Owner:      Owner{UID: 1000, User: "alice"},
		Purpose:    keys.TLSClient,
		Algorithm:  keys.ES256,
		Persistent: true,
		TLS12:      true,
		Servers:    []Server{{Address: "api.example:6443", CA: caPEM()}},
		Confirm:    &Confirm{When: OncePerProcess, Minutes: 5},
		Chain:      [][]byte{bytes.Clone(leaf()), bytes.Clone(other())},
		Created:    time.Date(2026, 3, 4, 5, 6, 7, 89, time.FixedZone("", 3600)),
		RequestID:  "0123456789abcdef",
		Made:       Made{Device: "swtpm:/run/x/s", Maker: "IBM 1.2.3", Software: true},
		Material: keys.Material{
			Backend: "tpm",
			Public:  public(signer.p256()),
			Device:  json.RawMessage(`{"pem":"-----BEGIN <TSS2> & more","list":[{"a":1},{"a":2}]}`),
			PIN:     true,
			Card:    &keys.Place{Serial: 12345678, Slot: "9a", PINPolicy: keys.PolicyOnce, TouchPolicy: keys.PolicyAlways, Attested: true},
		},
	}
}

// stored is good in the form in which it is on disk, with its bytes.
func stored(t testing.TB, name string) (Record, []byte) {
	t.Helper()
	r := good(name)
	r.Version, r.Generation = version, 1
	r, data, err := r.canonical()
	if err != nil {
		t.Fatalf("the good record: %v", err)
	}
	return r, data
}

// place writes a file into the place of a record of uid 1000 and returns its path.
func place(t testing.TB, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, "keys", "1000", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParseReadsWhatCanonicalWrites(t *testing.T) {
	want, data := stored(t, "web")
	got, err := parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if !same(got, want) {
		t.Errorf("parse(canonical(r)):\n%+v\nwant\n%+v", got, want)
	}
	if !bytes.Contains(data, []byte("<TSS2> & more")) {
		t.Errorf("what the backend stored was rewritten:\n%s", data)
	}
}

// same compares by the canonical form.
func same(a, b Record) bool {
	return bytes.Equal(must(encode(a)), must(encode(b)))
}

func TestCloneSharesNothing(t *testing.T) {
	want, _ := stored(t, "web")
	c := want.clone()
	c.Servers[0].Address, c.Confirm.Minutes, c.Material.Card.Serial = "changed", 6, 6
	for _, b := range [][]byte{c.Chain[0], c.Material.Public, c.Material.Device} {
		b[0] ^= 1
	}
	if again, _ := stored(t, "web"); !same(want.clone(), want) || want.Servers[0].Address != again.Servers[0].Address ||
		!bytes.Equal(want.Material.Public, again.Material.Public) || !bytes.Equal(want.Material.Device, again.Material.Device) ||
		want.Chain[0][0] != again.Chain[0][0] || *want.Confirm != *again.Confirm || *want.Material.Card != *again.Material.Card {
		t.Error("writing to a clone changed the original")
	}
}

// TestCheck starts from the good record and changes one thing.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Record)
		want   string // part of the reason; empty when the record stays good
	}{
		{"nothing", func(*Record) {}, ""},
		{"version", func(r *Record) { r.Version = 2 }, "version 2"},
		{"generation", func(r *Record) { r.Generation = 0 }, "generation 0"},
		{"name", func(r *Record) { r.Name = "../etc" }, "not a key name"},
		{"purpose", func(r *Record) { r.Purpose = "all" }, `purpose "all"`},
		{"no purpose", func(r *Record) { r.Purpose = "" }, `purpose ""`},
		{"algorithm", func(r *Record) { r.Algorithm = "HS256" }, `algorithm "HS256"`},
		{"other algorithm", func(r *Record) { r.Algorithm = keys.ES384 }, "but the public key is for ES256"},
		{"RSA bits of no RSA key", func(r *Record) { r.RSABits = 2048 }, "2048 RSA bits"},
		{"P-384", func(r *Record) { use(r, signer.p384(), keys.ES384, 0) }, ""},
		{"RSA", func(r *Record) { use(r, signer.rsa2048(), keys.RS256, 2048) }, ""},
		{"RSA with other bits", func(r *Record) { use(r, signer.rsa2048(), keys.RS256, 3072) }, "3072 RSA bits"},
		{"RSA without bits", func(r *Record) { use(r, signer.rsa2048(), keys.RS256, 0) }, "with 0 RSA bits"},
		{"short RSA", func(r *Record) { use(r, signer.rsa1024(), keys.RS256, 1024) }, "an RSA key of 1024 bits"},
		{"no public key", func(r *Record) { r.Material.Public = nil }, "public key"},
		{"public key with a tail", func(r *Record) { r.Material.Public = append(r.Material.Public, 0) }, "public key"},
		{"another key", func(r *Record) { r.Material.Public = public(signer.other()) }, "for another key"},
		{"TLS 1.2 of no TLS key", func(r *Record) { r.Purpose, r.Servers = keys.ServiceAccount, nil }, "tls12 is set"},
		{"server of a server", func(r *Record) { r.Purpose = keys.TLSServer }, "bound to servers"},
		{"backend", func(r *Record) { r.Material.Backend = "T" }, "backend"},
		{"no device", func(r *Record) { r.Material.Device = nil }, "data is missing"},
		{"device with a member twice", func(r *Record) { r.Material.Device = []byte(`{"a":1,"a":2}`) }, `"a" twice`},
		{"device with one twice deep inside", func(r *Record) { r.Material.Device = []byte(`[{"x":[{"b":[],"c":{},"b":0}]}]`) }, `"b" twice`},
		{"confirmed once", func(r *Record) { r.Confirm = &Confirm{When: Once} }, ""},
		{"confirmed always", func(r *Record) { r.Confirm = &Confirm{When: Always} }, ""},
		{"confirmed for an hour", func(r *Record) { r.Confirm.Minutes = 60 }, ""},
		{"never confirmed", func(r *Record) { r.Confirm = nil }, ""},
		{"confirmed for longer", func(r *Record) { r.Confirm.Minutes = 61 }, "1 to 60 minutes"},
		{"confirmed for no time", func(r *Record) { r.Confirm.Minutes = 0 }, "1 to 60 minutes"},
		{"confirmed once, for a time", func(r *Record) { r.Confirm.When = Once }, "takes no minutes"},
		{"confirmed always, for a time", func(r *Record) { r.Confirm.When = Always }, "takes no minutes"},
		{"confirmed sometimes", func(r *Record) { r.Confirm = &Confirm{When: "sometimes"} }, `"sometimes"`},
		{"an empty confirmation", func(r *Record) { r.Confirm = &Confirm{} }, `confirmation ""`},
		{"on no card", func(r *Record) { r.Material.Card = nil }, ""},
		{"card without serial", func(r *Record) { r.Material.Card.Serial = 0 }, "serial number"},
		{"another slot", func(r *Record) { r.Material.Card.Slot = "9b" }, `"9b"`},
		{"slot in capitals", func(r *Record) { r.Material.Card.Slot = "9A" }, `"9A"`},
		{"PIN policy", func(r *Record) { r.Material.Card.PINPolicy = keys.PolicyCached }, `PIN policy "cached"`},
		{"touch policy", func(r *Record) { r.Material.Card.TouchPolicy = "" }, `touch policy ""`},
		{"leaf of another key", func(r *Record) { r.Chain = r.Chain[1:] }, "for another key"},
		{"damaged certificate", func(r *Record) { r.Chain[1] = r.Chain[1][1:] }, "certificate 2"},
		{"certificate with a tail", func(r *Record) { r.Chain[0] = append(r.Chain[0], 0) }, "certificate 1"},
		{"long chain", func(r *Record) { r.Chain = slicesOf(r.Chain[0], 17) }, "17 certificates"},
		{"no chain", func(r *Record) { r.Chain = nil }, ""},
		{"no servers", func(r *Record) { r.Servers = nil }, ""},
		{"many servers", func(r *Record) { r.Servers = slicesOf(Server{Address: "a:1"}, 65) }, "65 servers"},
		{"server without port", func(r *Record) { r.Servers[0].Address = "api.example" }, "missing port"},
		{"server with port 0", func(r *Record) { r.Servers[0].Address = "api.example:0" }, "HOST:PORT"},
		{"server without host", func(r *Record) { r.Servers[0].Address = ":443" }, "HOST:PORT"},
		{"server with a newline", func(r *Record) { r.Servers[0].Address = "a\nb:443" }, "HOST:PORT"},
		{"server by address", func(r *Record) { r.Servers[0].Address = "[2001:db8::1]:443" }, ""},
		{"server without CA", func(r *Record) { r.Servers[0].CA = "" }, "want certificates"},
		{"CA with a key", func(r *Record) { r.Servers[0].CA += "-----BEGIN X-----\n-----END X-----\n" }, "want certificates"},
		{"damaged CA", func(r *Record) { r.Servers[0].CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" }, "x509"},
		{"user with an escape", func(r *Record) { r.Owner.User = "a\x1b[2J" }, "owner's name"},
		{"long request id", func(r *Record) { r.RequestID = strings.Repeat("x", 257) }, "request id"},
		{"not UTF-8", func(r *Record) { r.Made.Maker = "\xff" }, "canonical"},
		{"no time", func(r *Record) { r.Created = time.Time{} }, "time of creation"},
		{"too large", func(r *Record) { r.Material.Device = []byte(`"` + strings.Repeat("x", MaxRecord) + `"`) }, "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := stored(t, "web")
			c.change(&r)
			_, _, err := r.canonical()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && err == nil:
				t.Errorf("accepted, want %q", c.want)
			case c.want != "" && !strings.Contains(err.Error(), c.want):
				t.Errorf("reason %q, want %q in it", err, c.want)
			}
		})
	}
}

// use makes r the record of another key, without the parts that bind it to the
// first one.
func use(r *Record, s crypto.Signer, a keys.Algorithm, bits int) {
	r.Algorithm, r.RSABits, r.Chain, r.Material.Public = a, bits, nil, public(s)
}

func slicesOf[T any](v T, n int) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// TestParseTakesOneFormOnly edits the text of a good record.
func TestParseTakesOneFormOnly(t *testing.T) {
	_, data := stored(t, "web")
	for _, c := range []struct{ name, old, new string }{
		{"unknown member", `"version": 1,`, "\"version\": 1,\n  \"extra\": 1,"},
		{"duplicate member", `"version": 1,`, "\"version\": 1,\n  \"version\": 1,"},
		{"duplicate with another value", `"purpose": "tls-client",`, "\"purpose\": \"tls-server\",\n  \"purpose\": \"tls-client\","},
		{"case variant", `"purpose":`, `"Purpose":`},
		{"escaped name", `"purpose":`, `"\u0070urpose":`},
		{"escaped value", `"tls-client"`, `"tls\u002dclient"`},
		{"unknown nested member", `"user": "alice"`, `"user": "alice", "gid": 0`},
		{"spaces", `"version": 1,`, `"version":  1,`},
		{"explicit zero", `"persistent": true,`, "\"rsaBits\": 0,\n  \"persistent\": true,"},
		{"null", `"persistent": true,`, `"persistent": null,`},
		{"confirmation of null", `"chain":`, "\"confirm\": null,\n  \"chain\":"},
		{"unknown member of the confirmation", `"minutes": 5`, "\"minutes\": 5,\n    \"seconds\": 5"},
		{"confirmation with explicit zero", `"minutes": 5`, `"minutes": 0`},
		{"another zone", `"2026-03-04T04:06:07.000000089Z"`, `"2026-03-04T05:06:07.000000089+01:00"`},
		{"float", `"version": 1,`, `"version": 1.0,`},
		{"number in a string", `"uid": 1000,`, `"uid": "1000",`},
		{"negative", `"uid": 1000,`, `"uid": -1,`},
	} {
		t.Run(c.name, func(t *testing.T) {
			edited := bytes.Replace(data, []byte(c.old), []byte(c.new), 1)
			if bytes.Equal(edited, data) {
				t.Fatalf("the good record has no %s:\n%s", c.old, data)
			}
			if _, err := parse(edited); err == nil {
				t.Error("accepted")
			}
		})
	}
	for name, edited := range map[string][]byte{
		"empty":         {},
		"cut":           data[:len(data)-1],
		"tail":          append(bytes.Clone(data), '\n'),
		"second object": append(bytes.Clone(data), data...),
		"mark":          append([]byte("\xef\xbb\xbf"), data...),
		"null":          []byte("null\n"),
		"array":         []byte("[]\n"),
	} {
		if _, err := parse(edited); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
