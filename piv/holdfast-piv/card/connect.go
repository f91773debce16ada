package card

import (
	"errors"
	"fmt"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/internal/fault"
	"holdfast/piv/holdfast-piv/pcsc"
)

// connect opens the card in the reader, whichever it is, for this process alone.
func (s *Session) connect(reader string) error {
	if err := s.arrived(reader); err != nil {
		return err
	}
	yk, err := piv.Open(reader)
	if err != nil {
		s.broken = leaks(reader, err)
		return notPIV(reader, err)
	}
	raw, err := borrow(yk)
	if err != nil {
		yk.Close()
		return err
	}
	s.yk, s.raw, s.firmware, s.proven = yk, raw, yk.Version(), map[string][]byte{}
	if s.serial, err = yk.Serial(); err != nil {
		s.drop()
		return notPIV(reader, err)
	}
	return nil
}

// leaks reports whether piv.Open, which failed with err, has left its exclusive
// connection to the reader open, which it does when the card refuses a transaction
// or the PIV application. Only the end of the process closes that one.
// piv-go's errors do not tell at which step it failed, but pcscd refuses a second
// connection while the first is open.
func leaks(reader string, err error) bool {
	switch code, _ := codeOf(err); code {
	case pcsc.SharingViolation, pcsc.UnresponsiveCard, pcsc.UnpoweredCard, pcsc.NoService:
		return false // no connection was made
	}
	c, err := pcsc.Connect(reader)
	if err != nil {
		return errors.Is(err, pcsc.SharingViolation)
	}
	c.Close()
	return false
}

// arrived locks the keys when the reader is another one, or a card was removed from
// it, since the last connection: that card may be anywhere by now.
func (s *Session) arrived(reader string) error {
	now, err := pcsc.Readers()
	if err != nil {
		return err
	}
	was, is := find(s.known, s.reader), find(now, reader)
	s.known, s.reader = now, reader
	if !is.Present || was.Name != is.Name || was.Changes != is.Changes {
		s.vault.Lock("")
	}
	if is.Name == "" {
		return pcsc.UnknownReader
	}
	return nil
}

// find returns the reader of that name, or the zero value.
func find(all []pcsc.Reader, name string) pcsc.Reader {
	for _, r := range all {
		if r.Name == name {
			return r
		}
	}
	return pcsc.Reader{}
}

// notPIV translates the error of a card that is no PIV card. It does not change other
// errors.
func notPIV(reader string, err error) error {
	status, _ := statusOf(err)
	if status != statusNotFound && status != statusNoInstruction && status != statusNoClass {
		return err
	}
	return &fault.Error{Kind: fault.DeviceAbsent, Err: err,
		Message: fmt.Sprintf("the card in the reader %q is no PIV card that can be used here", reader),
		Hint:    "holdfast uses YubiKeys from version 4 on, with their PIV application enabled"}
}
