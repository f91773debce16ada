package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
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
	Backend    string          `json:"backend"` // whose device opens it
	Device     json.RawMessage `json:"device"`  // what keys.Sealer returned
}

// MaxSealed is how many secrets of one uid the store keeps.
const MaxSealed = 64

// GetSealed returns a copy of the secret that owner calls name.
func (s *Store) GetSealed(owner uint32, name string) (Sealed, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.sealed[id{owner, name}]
	r.Device = bytes.Clone(r.Device)
	return r, ok
}

// PutSealed stores a sealed secret and returns when it is on the disk and has been
// read back. Version and Generation are set by the store. A name that is taken is
// a bad-request [fault.Error] unless over, as is a record that fails the checks;
// more than [MaxSealed] of one owner is a denied one. When PutSealed fails, what
// was there before stays.
func (s *Store) PutSealed(r Sealed, over bool) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	k := id{r.Owner.UID, r.Name}
	current, taken := s.GetSealed(k.owner, k.name)
	if taken && !over {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("sealed secret %q already exists", k.name), Hint: "choose another name, or replace it"}
	}
	r.Version, r.Generation = version, max(current.Generation, s.ledger.Generations[k.sealed()])+1
	r, data, err := r.canonical()
	if err != nil {
		return unfit(err)
	}
	write := create
	if taken {
		write, err = replace, s.untouched(s.sealedPath(k), current)
	} else {
		err = s.roomForSealed(k)
	}
	if err != nil {
		return err
	}
	return s.settleSealed(k, write(s.disk, s.sealedPath(k), data), r)
}

// roomForSealed makes the place of a new name.
func (s *Store) roomForSealed(k id) error {
	if s.countSealed(k.owner) >= MaxSealed {
		return &fault.Error{Kind: fault.Denied, Message: fmt.Sprintf("uid %d has %d sealed secrets, and may have no more", k.owner, MaxSealed), Hint: "delete one that is not needed"}
	}
	path := s.sealedPath(k)
	if err := vacant(path, "sealed secret", k.name); err != nil {
		return err
	}
	for _, dir := range []string{s.sealedRoot(), filepath.Dir(path)} {
		if err := s.makeDirectory(dir); err != nil {
			return fmt.Errorf("make the owner's directory: %w", err)
		}
	}
	return nil
}

// DeleteSealed removes a sealed secret for good, or returns a denied [fault.Error]
// when there is none. Files that are set aside are never deleted.
func (s *Store) DeleteSealed(owner uint32, name string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	k := id{owner, name}
	current, ok := s.GetSealed(owner, name)
	if !ok {
		return &fault.Error{Kind: fault.Denied, Message: "no such sealed secret, or it is not yours"}
	}
	if err := s.untouched(s.sealedPath(k), current); err != nil {
		return err
	}
	return s.settleSealed(k, discard(s.disk, s.sealedPath(k)), Sealed{})
}

func (s *Store) countSealed(owner uint32) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for k := range s.sealed {
		if k.owner == owner {
			n++
		}
	}
	return n
}

func (s *Store) sealedRoot() string { return filepath.Join(s.dir, "sealed") }

func (s *Store) sealedPath(k id) string {
	return filepath.Join(s.sealedRoot(), strconv.FormatUint(uint64(k.owner), 10), k.name+".json")
}

// sealed is the name of a sealed secret in the ledger.
func (k id) sealed() string { return "sealed/" + k.String() }

// settleSealed makes memory follow the disk, as settle does for keys.
func (s *Store) settleSealed(k id, err error, r Sealed) error {
	if err != nil {
		s.rereadSealed(k)
		return fmt.Errorf("%s: %w", s.sealedPath(k), err)
	}
	s.keepSealed(k, r)
	s.remember(k.sealed(), r.Generation)
	return nil
}

func (s *Store) rereadSealed(k id) {
	data, err := read(s.disk, s.sealedPath(k), MaxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		s.keepSealed(k, Sealed{})
	}
	if err != nil {
		return
	}
	if r, err := parseSealed(data); err == nil {
		s.keepSealed(k, r)
	}
}

func (s *Store) keepSealed(k id, r Sealed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Generation == 0 {
		delete(s.sealed, k)
	} else {
		s.sealed[k] = r
	}
}

// check returns what makes r unusable, as one fact.
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
	if len(data) > MaxRecord {
		return Sealed{}, fmt.Errorf("larger than %d bytes", MaxRecord)
	}
	if err := decode(data, &r); err != nil {
		return Sealed{}, err
	}
	if err := r.check(); err != nil {
		return Sealed{}, err
	}
	var device bytes.Buffer
	if err := json.Compact(&device, r.Device); err != nil {
		return Sealed{}, err
	}
	r.Device = device.Bytes()
	return r, nil
}

// canonical encodes r and reads it back, as a restart would.
func (r Sealed) canonical() (Sealed, []byte, error) {
	r.Created = r.Created.UTC().Round(0)
	data, err := encode(r)
	if err != nil {
		return Sealed{}, nil, err
	}
	same, err := parseSealed(data)
	return same, data, err
}

func (l *loader) sealedShelf() shelf {
	return shelf{
		root: l.store.sealedRoot(), optional: true, is: "sealed secret",
		good: func(data []byte) error { _, err := parseSealed(data); return err },
		take: l.secret,
	}
}

// secret takes the record of a sealed secret.
func (l *loader) secret(data []byte, k id) error {
	r, err := parseSealed(data)
	if err != nil {
		return err
	}
	if r.Name != k.name || r.Owner.UID != k.owner {
		return fmt.Errorf("the sealed secret %q of uid %d", r.Name, r.Owner.UID)
	}
	if err := l.newest(k.sealed(), r.Generation); err != nil {
		return err
	}
	l.sealed[k] = r
	return nil
}
