package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// Sealed is everything that is kept of one sealed secret. Its file has the same
// form as that of a [Record], and it holds nothing that is of use without the
// device.
type Sealed struct {
	Version    int             `json:"version"`    // of this format: 1
	Name       string          `json:"name"`       // see keys.CheckName
	Generation uint64          `json:"generation"` // counts the writes under this name, from 1; set by the store
	Owner      Owner           `json:"owner"`
	Created    time.Time       `json:"created"`             // UTC
	RequestID  string          `json:"requestID,omitempty"` // of the call that made it, so that a repeat finds it
	Made       Made            `json:"made"`
	Backend    string          `json:"backend"` // whose device unseals it
	Device     json.RawMessage `json:"device"`  // as keys.Sealer returned it
}

// MaxSealed bounds the sealed secrets of one uid.
const MaxSealed = 64

// GetSealed returns a copy of the secret that owner calls name.
func (s *Store) GetSealed(owner uint32, name string) (Sealed, bool) {
	r, ok := s.sealed.get(id{owner, name})
	r.Device = bytes.Clone(r.Device)
	return r, ok
}

// PutSealed stores a sealed secret and returns when it is on the disk and has been
// read back. Version and Generation are set by the store. A name that is taken is
// a bad-request [fault.Error] unless over, as is a record that fails the checks;
// more than [MaxSealed] of one owner is a denied one. When PutSealed fails, the
// previous secret stays.
func (s *Store) PutSealed(r Sealed, over bool) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	k := r.id()
	current, taken := s.sealed.get(k)
	r.Version, r.Generation = version, s.sealed.next(k, current)
	switch {
	case taken && over:
		return s.sealed.replace(r)
	case taken:
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("sealed secret %q already exists", k.name), Hint: "choose another name, or replace it"}
	case s.sealed.count(k.owner) >= MaxSealed:
		return &fault.Error{Kind: fault.Denied, Message: fmt.Sprintf("uid %d has %d sealed secrets, and may have no more", k.owner, MaxSealed), Hint: "delete one that is not needed"}
	}
	return s.sealed.create(r)
}

// DeleteSealed removes a sealed secret for good, or returns a denied [fault.Error]
// when there is none. Files that are set aside are never deleted.
func (s *Store) DeleteSealed(owner uint32, name string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	k := id{owner, name}
	if _, ok := s.sealed.get(k); !ok {
		return &fault.Error{Kind: fault.Denied, Message: "no such sealed secret, or it is not yours"}
	}
	return s.sealed.remove(k)
}

func (r Sealed) id() id             { return id{r.Owner.UID, r.Name} }
func (r Sealed) generation() uint64 { return r.Generation }

// check returns the first reason why r cannot be used.
func (r *Sealed) check() error {
	if r.Version != version {
		return fmt.Errorf("version %d is not known", r.Version)
	}
	if r.Generation == 0 {
		return errors.New("generation 0")
	}
	if err := keys.CheckName(r.Name); err != nil {
		return err
	}
	if err := checkDevice(r.Backend, r.Device); err != nil {
		return err
	}
	return checkTexts(r.Owner, r.RequestID, r.Made, r.Created)
}

// parseSealed reads and checks the file of a sealed secret.
func parseSealed(data []byte) (Sealed, error) {
	var r Sealed
	if err := parseRecord(data, &r, &r.Device); err != nil {
		return Sealed{}, err
	}
	return r, nil
}

func (r Sealed) canonical() (Sealed, []byte, error) {
	r.Created = r.Created.UTC().Round(0)
	return canonical(r, parseSealed)
}
