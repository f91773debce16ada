package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"holdfast/internal/fault"
)

// Create stores a new key and returns when the record is on the disk and has
// been read back. Version and Generation are set by the store. A key of that
// name, or a file in its place, is a bad-request [fault.Error]; so is a record
// that fails the checks. When Create fails, nothing was stored.
func (s *Store) Create(r Record) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	k := id{r.Owner.UID, r.Name}
	r.Version, r.Generation = version, s.ledger.Generations[k.String()]+1
	r, data, err := r.canonical()
	if err != nil {
		return unfit(err)
	}
	if _, ok := s.Get(k.owner, k.name); ok {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("key %q already exists", k.name)}
	}
	path := s.path(k)
	if err := vacant(path, "key", k.name); err != nil {
		return err
	}
	if err := s.makeDirectory(filepath.Dir(path)); err != nil {
		return fmt.Errorf("make the owner's directory: %w", err)
	}
	return s.settle(k, create(s.disk, path, data), r)
}

// vacant refuses the place of a file that was set aside.
func vacant(path, what, name string) error {
	if !exists(path) && !exists(sibling(path, outgoing)) {
		return nil
	}
	return &fault.Error{
		Kind:    fault.BadRequest,
		Message: fmt.Sprintf("a file that cannot be used has the place of %s %q", what, name),
		Hint:    "holdfast doctor says what is wrong with it; move it away or mend it",
	}
}

// Replace stores r in place of the record of the same name, owner and
// generation, and counts the generation up. It returns a denied [fault.Error] when
// there is none and a busy one when the record changed since r was read. When
// Replace fails, the previous record stays.
func (s *Store) Replace(r Record) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	k := id{r.Owner.UID, r.Name}
	current, ok := s.Get(k.owner, k.name)
	if !ok {
		return missing()
	}
	if r.Generation != current.Generation {
		return &fault.Error{Kind: fault.Busy, Message: fmt.Sprintf("key %q was changed meanwhile", k.name), Hint: "try again"}
	}
	r.Generation = max(r.Generation, s.ledger.Generations[k.String()]) + 1
	r, data, err := r.canonical()
	if err != nil {
		return unfit(err)
	}
	if err := s.untouched(s.path(k), current); err != nil {
		return err
	}
	return s.settle(k, replace(s.disk, s.path(k), data), r)
}

// Delete removes a record for good, or returns a denied [fault.Error] when there is
// none. Files that are set aside are not keys and are never deleted.
func (s *Store) Delete(owner uint32, name string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	k := id{owner, name}
	current, ok := s.Get(owner, name)
	if !ok {
		return missing()
	}
	if err := s.untouched(s.path(k), current); err != nil {
		return err
	}
	return s.settle(k, discard(s.disk, s.path(k)), Record{})
}

func unfit(err error) error {
	if e, ok := fault.AsError(err); ok {
		return e
	}
	return &fault.Error{Kind: fault.BadRequest, Message: "the key's record is not valid", Err: err}
}

func missing() error {
	return &fault.Error{Kind: fault.Denied, Message: "no such key, or it is not yours to use"}
}

// untouched refuses to write over a file that is no longer the one that was
// loaded: somebody put it there on purpose.
func (s *Store) untouched(path string, current any) error {
	want, err := encode(current)
	if err != nil {
		return err
	}
	got, err := read(s.disk, path, MaxRecord)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s was changed by somebody else: reload first", path)
	}
	return nil
}

// settle makes memory follow the disk after a change that ended with err and
// that was meant to leave r, or no key when r is the zero Record.
func (s *Store) settle(k id, err error, r Record) error {
	if err != nil {
		s.reread(k)
		return fmt.Errorf("%s: %w", s.path(k), err)
	}
	s.keep(k, r)
	s.remember(k.String(), r.Generation)
	return nil
}

// reread takes what is on the disk after a change that failed, in case it could
// not be taken back. A record that cannot be read now stays as it was loaded.
func (s *Store) reread(k id) {
	data, err := read(s.disk, s.path(k), MaxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		s.keep(k, Record{})
	}
	if err != nil {
		return
	}
	if r, err := parse(data); err == nil {
		s.keep(k, r)
	}
}

func (s *Store) keep(k id, r Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Generation == 0 {
		delete(s.records, k)
	} else {
		s.records[k] = r
	}
}
