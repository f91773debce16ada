package piv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/attestation"
)

// A record is the device member of a key's material: the JSON encoding of this
// struct without white space.
type record struct {
	Serial      uint32      `json:"serial"`
	Slot        string      `json:"slot"`
	PINPolicy   keys.Policy `json:"pinPolicy"`
	TouchPolicy keys.Policy `json:"touchPolicy"`
	Firmware    string      `json:"firmware"`           // of the card when the key was adopted; it never changes
	Imported    bool        `json:"imported,omitempty"` // adopted without proof that the card made it
	Attestation [][]byte    `json:"attestation,omitempty"`
}

// A key is a parsed and valid material.
type key struct {
	record
	public    []byte
	algorithm keys.Algorithm
	bits      int
	id        string // the record's text, which identifies the key
}

// maxRecord is the longest record, in bytes: two certificates of 4 KiB each, in
// base64.
const maxRecord = 12 << 10

// material returns the stored form of k.
func (k *key) material() (keys.Material, error) {
	device, err := json.Marshal(k.record)
	if err != nil {
		return keys.Material{}, err
	}
	if len(device) > maxRecord {
		return keys.Material{}, damaged(fmt.Errorf("a record of %d bytes", len(device)))
	}
	return keys.Material{Backend: Backend, Public: k.public, Device: device, PIN: k.wantsPIN(), Imported: k.Imported, Card: k.place()}, nil
}

func (r *record) wantsPIN() bool { return r.PINPolicy != keys.PolicyNever }

func (r *record) place() *keys.Place {
	return &keys.Place{Serial: r.Serial, Slot: r.Slot, PINPolicy: r.PINPolicy, TouchPolicy: r.TouchPolicy, Attested: len(r.Attestation) > 0}
}

// parse reads a material and rejects, as bad-request, one that [key.material] would
// not have written: its other members must agree with its record.
func parse(m keys.Material) (*key, error) {
	if m.Backend != Backend {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: "the key is not on a card"}
	}
	k := &key{public: m.Public}
	if err := k.parseRecord(m.Device); err != nil {
		return nil, damaged(err)
	}
	public, err := keys.ParsePublic(m.Public)
	if err != nil {
		return nil, damaged(err)
	}
	if k.algorithm, k.bits, err = keys.AlgorithmOf(public); err != nil {
		return nil, err
	}
	if m.Card == nil || *m.Card != *k.place() || m.PIN != k.wantsPIN() || m.Imported != k.Imported {
		return nil, damaged(fmt.Errorf("the key's place is not the one of its record"))
	}
	return k, nil
}

func damaged(err error) error {
	return &fault.Error{Kind: fault.BadRequest, Message: "the key's record is damaged", Err: err}
}

func (k *key) parseRecord(text []byte) error {
	if len(text) > maxRecord {
		return fmt.Errorf("a record of %d bytes", len(text))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&k.record); err != nil {
		return err
	}
	canonical, err := json.Marshal(k.record)
	if err != nil {
		return err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return err
	}
	if !bytes.Equal(compact.Bytes(), canonical) {
		return fmt.Errorf("the record is not in its usual form")
	}
	k.id = string(canonical)
	return k.plausible()
}

// plausible checks that a record's values are possible.
func (r *record) plausible() error {
	if _, err := keys.ParseSlot(r.Slot); err != nil {
		return err
	}
	if _, err := attestation.ParseFirmware(r.Firmware); err != nil {
		return err
	}
	switch {
	case r.Serial == 0:
		return fmt.Errorf("a card without a serial number")
	case !slices.Contains(keys.PINPolicies(), r.PINPolicy), !slices.Contains(keys.TouchPolicies(), r.TouchPolicy):
		return fmt.Errorf("policies %.20q and %.20q", r.PINPolicy, r.TouchPolicy)
	case len(r.Attestation) != 0 && len(r.Attestation) != 2:
		return fmt.Errorf("an attestation of %d certificates", len(r.Attestation))
	case len(r.Attestation) != 0 && r.Imported:
		return fmt.Errorf("an imported key with an attestation")
	}
	return nil
}

// attested returns an error unless the card's statement, if the record has one,
// agrees with the record.
func (k *key) attested(roots attestation.Roots) error {
	if len(k.Attestation) == 0 {
		return nil
	}
	_, err := attestation.Verify(k.Attestation[0], k.Attestation[1], roots, attestation.Expected{
		Public: k.public, Serial: k.Serial, Slot: k.Slot, PINPolicy: k.PINPolicy, TouchPolicy: k.TouchPolicy, Firmware: k.Firmware,
	})
	return err
}
