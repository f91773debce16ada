// Package pcsc has the parts of PC/SC that holdfast-piv needs beyond piv-go: the
// readers and their changes, and commands of our own on a card.
//
// Start at [Watch] for readers and at [Connect] for a card. Every buffer and every loop
// has a bound, and a malformed answer is an error, never a panic.
//
// A connection is shared with other programs, and holds a transaction for as long as it
// lasts. piv-go works on the same connection: see [Card.Lend].
//
// It does not protect against a card or a driver that never answers: such a call
// hangs, and only the end of the process ends it.
package pcsc

// #cgo pkg-config: libpcsclite
// #include <winscard.h>
import "C"

// session is a connection to pcscd.
type session struct{ handle C.SCARDCONTEXT }

func establish() (*session, error) {
	var s session
	if err := check(C.SCardEstablishContext(C.SCARD_SCOPE_SYSTEM, nil, nil, &s.handle)); err != nil {
		return nil, err
	}
	return &s, nil
}

func (s *session) release() { C.SCardReleaseContext(s.handle) }
