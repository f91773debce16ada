package store

import (
	"fmt"

	"holdfast/internal/fault"
)

// Create stores a new key and returns when the record is on the disk and has
// been read back. Version and Generation are set by the store. A key of that
// name, or a file in its place, is a bad-request [fault.Error]; so is a record
// that fails the checks. When Create fails, nothing was stored.
func (s *Store) Create(r Record) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	r.Version, r.Generation = version, s.keys.next(r.id(), Record{})
	return s.keys.create(r)
}

// Replace stores r in place of the record of the same name, owner and
// generation, and counts the generation up. It returns a denied [fault.Error] when
// there is none and a busy one when the record changed since r was read. When
// Replace fails, the previous record stays.
func (s *Store) Replace(r Record) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	k := r.id()
	current, ok := s.keys.get(k)
	if !ok {
		return missing()
	}
	if r.Generation != current.Generation {
		return &fault.Error{Kind: fault.Busy, Message: fmt.Sprintf("key %q was changed meanwhile", k.name), Hint: "try again"}
	}
	r.Generation = s.keys.next(k, current)
	return s.keys.replace(r)
}

// Delete removes a record for good, or returns a denied [fault.Error] when there is
// none. Files that are set aside are not keys and are never deleted.
func (s *Store) Delete(owner uint32, name string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	k := id{owner, name}
	if _, ok := s.keys.get(k); !ok {
		return missing()
	}
	return s.keys.remove(k)
}

func missing() error {
	return &fault.Error{Kind: fault.Denied, Message: "no such key, or it is not yours to use"}
}
