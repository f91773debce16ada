package pcsc

// #include <stdlib.h>
// #include <winscard.h>
import "C"

import (
	"bytes"
	"errors"
	"slices"
	"time"
	"unsafe"
)

// A Reader is one card reader as pcscd reports it.
type Reader struct {
	Name    string
	Present bool   // a card is in it
	Changes uint32 // counts insertions and removals, modulo 65,536
	InUse   bool   // some program is connected to the card
}

// maxList bounds the list of names, in bytes: pcscd supports 16 readers, and names
// have at most 128 bytes.
const maxList = 16 << 10

// slice bounds one wait. A reader that is plugged in between two calls is found after
// this time.
const slice = 5 * time.Second

// Readers returns the present readers, in pcscd's order.
func Readers() ([]Reader, error) {
	s, err := establish()
	if err != nil {
		return nil, err
	}
	defer s.release()
	return s.readers()
}

// Watch returns the readers as soon as their names, or the cards in them, differ from
// known, and otherwise after wait. A program that connects to a card does not end the
// wait.
func Watch(known []Reader, wait time.Duration) ([]Reader, error) {
	s, err := establish()
	if err != nil {
		return nil, err
	}
	defer s.release()
	for deadline := time.Now().Add(wait); ; {
		now, err := s.readers()
		left := time.Until(deadline)
		if err != nil || left <= 0 || !slices.EqualFunc(now, known, same) {
			return now, err
		}
		if err := s.wait(now, min(left, slice)); err != nil {
			return nil, err
		}
	}
}

func same(a, b Reader) bool {
	return a.Name == b.Name && a.Present == b.Present && a.Changes == b.Changes
}

func (s *session) readers() ([]Reader, error) {
	names, err := s.list()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	states := newStates(names)
	defer states.free()
	if err := s.change(states, 0); err != nil {
		return nil, err
	}
	return states.readers(names), nil
}

// list returns the readers' names. No reader is not an error.
func (s *session) list() ([]string, error) {
	buffer := make([]byte, maxList)
	n := C.DWORD(len(buffer))
	err := check(C.SCardListReaders(s.handle, nil, (*C.char)(unsafe.Pointer(&buffer[0])), &n))
	if errors.Is(err, NoReaders) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range bytes.SplitSeq(buffer[:min(int(n), len(buffer))], []byte{0}) {
		if len(name) > 0 {
			names = append(names, string(name))
		}
	}
	return names, nil
}

// wait returns when a reader or card was added or removed, a program connected to a
// card, or the time is over.
func (s *session) wait(now []Reader, longest time.Duration) error {
	names := []string{`\\?PnP?\Notification`} // stands for added and removed readers
	for _, r := range now {
		names = append(names, r.Name)
	}
	states := newStates(names)
	defer states.free()
	if err := s.change(states, 0); err != nil {
		return err
	}
	if !slices.EqualFunc(states.readers(names)[1:], now, same) {
		return nil
	}
	for i := range states {
		states[i].dwCurrentState = states[i].dwEventState &^ C.SCARD_STATE_CHANGED
	}
	return s.change(states, longest)
}

// change calls SCardGetStatusChange. A reader that was removed meanwhile is a change.
func (s *session) change(states states, longest time.Duration) error {
	err := check(C.SCardGetStatusChange(s.handle, C.DWORD(longest.Milliseconds()), &states[0], C.DWORD(len(states))))
	if errors.Is(err, Timeout) || errors.Is(err, UnknownReader) {
		return nil
	}
	return err
}

// states is the argument of SCardGetStatusChange. Its names are allocated by C.
type states []C.SCARD_READERSTATE

func newStates(names []string) states {
	all := make(states, len(names))
	for i, name := range names {
		all[i].szReader = C.CString(name)
	}
	return all
}

func (all states) free() {
	for i := range all {
		C.free(unsafe.Pointer(all[i].szReader))
	}
}

func (all states) readers(names []string) []Reader {
	readers := make([]Reader, len(all))
	for i, s := range all {
		readers[i] = Reader{
			Name:    names[i],
			Present: s.dwEventState&C.SCARD_STATE_PRESENT != 0,
			Changes: uint32(s.dwEventState>>16) & 0xffff,
			InUse:   s.dwEventState&(C.SCARD_STATE_INUSE|C.SCARD_STATE_EXCLUSIVE) != 0,
		}
	}
	return readers
}
