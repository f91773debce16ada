package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"holdfast/internal/keys"
)

// Record is everything that the store keeps of one key. On disk it is one JSON object in
// the canonical form that [Record] encodes to, two spaces of indentation and a
// newline at its end; a file in any other form is not used.
type Record struct {
	Version    int            `json:"version"`    // of this format: 1
	Name       string         `json:"name"`       // see keys.CheckName
	Generation uint64         `json:"generation"` // counts the writes of this record, from 1; set by the store
	Owner      Owner          `json:"owner"`
	Purpose    keys.Purpose   `json:"purpose"`
	Algorithm  keys.Algorithm `json:"algorithm"`
	RSABits    int            `json:"rsaBits,omitempty"`    // the modulus of an RS256 key
	Persistent bool           `json:"persistent,omitempty"` // kept loaded in the device
	TLS12      bool           `json:"tls12,omitempty"`      // TLS 1.2 messages may be signed
	Servers    []Server       `json:"servers,omitempty"`    // the only servers that a tls-client key may be used against; none: any
	Confirm    *Confirm       `json:"confirm,omitempty"`    // when a user has to confirm the key's use; nil: never
	Chain      [][]byte       `json:"chain,omitempty"`      // certificates, DER, leaf first
	Created    time.Time      `json:"created"`              // UTC
	RequestID  string         `json:"requestID,omitempty"`  // of the call that made it, so that a repeat finds it
	Made       Made           `json:"made"`
	Material   keys.Material  `json:"material"`
}

// Owner is the user that a key belongs to. User is the name of the uid when the key
// was made; only the uid counts.
type Owner struct {
	UID  uint32 `json:"uid"`
	User string `json:"user,omitempty"`
}

// Server is a server that a key is bound to.
type Server struct {
	Address string `json:"address"` // HOST:PORT
	CA      string `json:"ca"`      // the certificates that must have issued the server's, PEM
}

// Made describes the origin of a key for people. No decision depends on it.
type Made struct {
	Device   string `json:"device,omitempty"`   // the name of the device
	Maker    string `json:"maker,omitempty"`    // its manufacturer and firmware at that time
	Software bool   `json:"software,omitempty"` // a software TPM: no hardware protects the key
}

// version is the only record format so far.
const version = 1

// MaxRecord is the largest record file, in bytes.
const MaxRecord = 256 << 10

// encode returns r's canonical form.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // a backend's data is stored unchanged
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// decode reads the canonical form of v and nothing else. That the bytes are
// those which encode makes of the value excludes unknown, duplicate and
// case-variant members, and anything before, between or after them.
func decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	again, err := encode(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, data) {
		return fmt.Errorf("not in canonical form from byte %d on", common(again, data))
	}
	return nil
}

// common returns the length of the common prefix of two slices.
func common(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func (r Record) id() id             { return id{r.Owner.UID, r.Name} }
func (r Record) generation() uint64 { return r.Generation }

// parse reads and checks a record.
func parse(data []byte) (Record, error) {
	var r Record
	if err := parseRecord(data, &r, &r.Material.Device); err != nil {
		return Record{}, err
	}
	return r, nil
}

func (r Record) canonical() (Record, []byte, error) {
	r.Created = r.Created.UTC().Round(0)
	return canonical(r, parse)
}

// clone returns a copy that shares no writable memory with r.
func (r Record) clone() Record {
	r.Servers = append([]Server(nil), r.Servers...)
	chain := r.Chain
	r.Chain = nil
	for _, der := range chain {
		r.Chain = append(r.Chain, bytes.Clone(der))
	}
	r.Confirm = copied(r.Confirm)
	r.Material.Card = copied(r.Material.Card)
	r.Material.Public = bytes.Clone(r.Material.Public)
	r.Material.Device = bytes.Clone(r.Material.Device)
	return r
}

// repeats returns the name of the first member that data has twice in one object.
// A backend's data is opaque here and returns to the backend unchanged, so the
// canonical form alone does not exclude such members in it.
func repeats(data []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	var open []map[string]bool // the members seen of each open object; nil for an array
	name := false              // a name comes next in the innermost object
	for {
		token, err := d.Token()
		if err == io.EOF {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{':
				open = append(open, map[string]bool{})
			case '[':
				open = append(open, nil)
			default:
				open = open[:len(open)-1]
			}
			name = len(open) > 0 && open[len(open)-1] != nil
			continue
		case string:
			if name {
				seen := open[len(open)-1]
				if seen[t] {
					return t, nil
				}
				seen[t] = true
				name = false
				continue
			}
		}
		name = len(open) > 0 && open[len(open)-1] != nil
	}
}
