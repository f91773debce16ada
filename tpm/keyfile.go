package tpm

import (
	"bytes"
	"encoding/asn1"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strconv"

	keyfile "github.com/foxboron/go-tpm-keyfiles"
	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// Limits on files, in bytes.
const (
	maxDER    = 8 << 10
	maxRecord = 16 << 10
)

// A record is the device member of a key's material.
type record struct {
	Key    string       `json:"key"` // TSS2 PRIVATE KEY, PEM
	Parent recordParent `json:"parent"`
	Handle string       `json:"handle,omitempty"` // where the key is persistent
}

// A recordParent pins the key's parent: its template or its handle, and its name.
type recordParent struct {
	Template []byte `json:"template,omitempty"` // TPMT_PUBLIC, for TPM2_CreatePrimary
	Handle   string `json:"handle,omitempty"`   // of a persistent parent
	Name     string `json:"name"`               // hex
}

// A key is a parsed and checked record.
type key struct {
	id         string // the record's bytes, which identify the key
	file       *keyfile.TPMKey
	area       *tpm2.TPMTPublic
	name       []byte
	spki       []byte
	suites     []suite
	parent     parentRef
	persistent tpm2.TPMHandle // zero for a key that is loaded on use
	pin        bool
}

// material returns the stored form of k, the only one that parseMaterial accepts.
func (k *key) material() (keys.Material, error) {
	r := record{Key: string(k.file.Bytes()), Parent: recordOf(k.parent)}
	if k.persistent != 0 {
		r.Handle = handleText(k.persistent)
	}
	device, err := json.Marshal(r)
	k.id = string(device)
	return keys.Material{
		Backend: Backend, Public: k.spki, Device: device, PIN: k.pin, Imported: len(k.freedoms()) != 0,
	}, err
}

// parseMaterial reads a key's material and makes all checks that need no device.
func parseMaterial(m keys.Material) (*key, error) {
	r, err := parseRecord(m.Device)
	if err != nil {
		return nil, err
	}
	k, err := parseKeyFile([]byte(r.Key))
	if err != nil {
		return nil, err
	}
	k.id = string(m.Device)
	if k.parent, err = r.Parent.ref(); err != nil {
		return nil, err
	}
	if r.Handle != "" {
		if k.persistent, err = parseHandle(r.Handle); err != nil {
			return nil, err
		}
	}
	return k, k.matches(m)
}

// matches rejects a key that differs from the rest of its material.
func (k *key) matches(m keys.Material) error {
	free := k.freedoms()
	switch {
	case m.Backend != Backend:
		return malformed("backend %q", m.Backend)
	case !bytes.Equal(k.spki, m.Public):
		return &fault.Error{Kind: fault.KeyMismatch, Message: "the key file holds another key than the recorded public key"}
	case k.pin != m.PIN:
		return &fault.Error{Kind: fault.KeyMismatch, Message: "the key file and the record disagree about a PIN"}
	case len(free) != 0 && !m.Imported:
		return &fault.Error{Kind: fault.KeyMismatch, Message: "the record is not marked as imported, but " + free[0]}
	}
	return nil
}

// parseRecord reads a record strictly: a record that does not encode back to the same
// bytes has an unknown, duplicate or misspelt member.
func parseRecord(device []byte) (record, error) {
	var r record
	if len(device) > maxRecord {
		return r, malformed("%d bytes, more than %d", len(device), maxRecord)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, device); err != nil {
		return r, malformed("%v", err)
	}
	if err := json.Unmarshal(device, &r); err != nil {
		return r, malformed("%v", err)
	}
	if again, err := json.Marshal(r); err != nil || !bytes.Equal(again, compact.Bytes()) {
		return r, malformed("unknown, doubled or misspelt members")
	}
	return r, nil
}

// ref checks the parent's part of a record.
func (p recordParent) ref() (parentRef, error) {
	ref := parentRef{template: p.Template}
	var err error
	if ref.name, err = hex.DecodeString(p.Name); err != nil || len(ref.name) == 0 {
		return ref, malformed("parent's name %.80q", p.Name)
	}
	if p.Handle == "" {
		return ref, checkTemplate(p.Template)
	}
	if len(p.Template) != 0 {
		return ref, malformed("a parent with template and handle")
	}
	ref.handle, err = parseHandle(p.Handle)
	return ref, err
}

// checkTemplate rejects anything but a storage key's public area.
func checkTemplate(template []byte) error {
	area, err := tpm2.Unmarshal[tpm2.TPMTPublic](template)
	if err != nil || !bytes.Equal(tpm2.Marshal(*area), template) {
		return malformed("parent's template")
	}
	return checkStorage(area)
}

// parseKeyFile reads a TSS2 PRIVATE KEY file (draft-bottomley-tpm2-keys) of a
// loadable key without policy. The caller checks its parent.
func parseKeyFile(file []byte) (*key, error) {
	f, err := parseFile(file, keyfile.OIDLoadableKey)
	if err != nil {
		return nil, err
	}
	return newKey(f)
}

// parseFile reads a TSS2 PRIVATE KEY file of one type, without policy, in
// canonical form.
func parseFile(file []byte, kind asn1.ObjectIdentifier) (*keyfile.TPMKey, error) {
	block, rest := pem.Decode(file)
	switch {
	case block == nil || block.Type != "TSS2 PRIVATE KEY" || len(bytes.TrimSpace(rest)) != 0:
		return nil, malformed("not one TSS2 PRIVATE KEY in PEM")
	case len(block.Bytes) > maxDER:
		return nil, malformed("a key of %d bytes", len(block.Bytes))
	}
	f, err := keyfile.Parse(block.Bytes)
	if err != nil {
		return nil, malformed("%v", err)
	}
	if !f.Keytype.Equal(kind) || len(f.Policy) != 0 || len(f.AuthPolicy) != 0 || len(f.Secret.Buffer) != 0 {
		return nil, refuse("its file is of another type, or has a policy")
	}
	if !canonical(f, block.Bytes) {
		return nil, malformed("its DER is not canonical, or has fields that are not known here")
	}
	return f, nil
}

// canonical reports whether f encodes back to der. tpm2-openssl writes TRUE as
// 1, which is BER; that byte is accepted.
func canonical(f *keyfile.TPMKey, der []byte) bool {
	again := keyfile.Marshal(f)
	foreign := bytes.Replace(again, []byte{0xa0, 3, 1, 1, 0xff}, []byte{0xa0, 3, 1, 1, 1}, 1)
	return bytes.Equal(again, der) || f.EmptyAuth && bytes.Equal(foreign, der)
}

// newKey checks a key's public area.
func newKey(f *keyfile.TPMKey) (*key, error) {
	area, err := f.Pubkey.Contents()
	if err != nil || !bytes.Equal(tpm2.Marshal(*area), f.Pubkey.Bytes()) {
		return nil, malformed("public area")
	}
	if err := checkSigner(area); err != nil {
		return nil, err
	}
	k := &key{file: f, area: area, pin: !f.EmptyAuth}
	if k.suites, err = suitesOf(area); err != nil {
		return nil, asMalformed(err)
	}
	if k.spki, err = spkiOf(area); err != nil {
		return nil, asMalformed(err)
	}
	name, err := tpm2.ObjectName(area)
	if err != nil {
		return nil, asMalformed(err)
	}
	k.name = name.Buffer
	return k, nil
}

// asMalformed gives a kind to errors of go-tpm and the standard library.
func asMalformed(err error) error {
	if _, ok := fault.AsError(err); ok {
		return err
	}
	return malformed("public area: %v", err)
}

// suite returns the suite for scheme s, if the key may sign so.
func (k *key) suite(s keys.Scheme) (suite, error) {
	for _, su := range k.suites {
		if su.scheme == s {
			return su, nil
		}
	}
	return suite{}, &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("the key does not sign %q", s)}
}

// malformed is the error for stored or imported bytes that are malformed; it quotes
// short fields at most, never the file.
func malformed(format string, args ...any) error {
	return &fault.Error{Kind: fault.BadRequest, Message: "TPM key: " + fmt.Sprintf(format, args...)}
}

// handleText is a handle as key records and people write it.
func handleText(h tpm2.TPMHandle) string { return fmt.Sprintf("0x%08x", uint32(h)) }

// parseHandle reads a handle from the persistent range, in the one spelling
// that handleText has.
func parseHandle(s string) (tpm2.TPMHandle, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	h := tpm2.TPMHandle(n)
	if err != nil || tpm2.TPMHT(n>>24) != tpm2.TPMHTPersistent || handleText(h) != s {
		return 0, malformed("handle %.20q", s)
	}
	return h, nil
}
