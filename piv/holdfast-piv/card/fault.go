package card

import (
	"errors"
	"fmt"
	"time"

	"holdfast/internal/fault"
	"holdfast/piv/holdfast-piv/pcsc"
	"holdfast/piv/wire"
)

// fault translates err into a fault, and releases the connection when it cannot be
// used any more. It does not change errors that are faults already.
func (s *Session) fault(err error) error {
	var named *wire.Error
	if _, ok := fault.AsError(err); ok || errors.As(err, &named) {
		return err
	}
	code, ok := codeOf(err)
	if !ok && s.yk != nil {
		// piv-go drops the code of some errors, but the connection still has it.
		code, ok = codeOf(s.raw.State())
	}
	if ok {
		s.Release() // the card may still be there, with its PIN verified
		return s.gone(code, err)
	}
	if status, ok := statusOf(err); ok {
		return answered(status)
	}
	if s.away() {
		s.drop()
		return s.gone(pcsc.RemovedCard, err)
	}
	s.Release() // piv-go's and the card's states may differ
	return &fault.Error{Kind: fault.DeviceFailed, Message: "the card's answer is malformed", Err: err}
}

// gone is the fault of a lost connection. When the card was removed, it locks the keys.
func (s *Session) gone(code pcsc.Code, err error) error {
	if (code == pcsc.NotTransacted || code == pcsc.CommError) && s.away() {
		code = pcsc.RemovedCard
	}
	if code == pcsc.RemovedCard || code == pcsc.NoSmartcard || code == pcsc.UnknownReader {
		s.vault.Lock("")
	}
	return readerFault(s.reader, code, err)
}

// shortly is how long pcscd may take to notice a removed card: it polls readers that
// send no events every 400 ms.
const shortly = 600 * time.Millisecond

// away reports whether the card or its reader was removed. A command that was in
// flight then may have failed with any error.
func (s *Session) away() bool {
	now, err := pcsc.Watch(s.known, shortly)
	if err != nil {
		return false
	}
	was, is := find(s.known, s.reader), find(now, s.reader)
	return !is.Present || is.Changes != was.Changes
}

// Fault translates an error of package pcsc. The reader may be empty.
func Fault(reader string, err error) error {
	if code, ok := codeOf(err); ok {
		return readerFault(reader, code, err)
	}
	if status, ok := statusOf(err); ok {
		return answered(status)
	}
	return &fault.Error{Kind: fault.DeviceFailed, Message: "the card's answer is malformed", Err: err}
}

const reinsert = "take the card out and put it in again"

func readerFault(reader string, code pcsc.Code, err error) error {
	e := &fault.Error{Kind: fault.DeviceFailed, Err: err}
	switch code {
	case pcsc.NoService, pcsc.ServiceStopped:
		e.Kind, e.Message, e.Next.Do = fault.DeviceAbsent, "pcscd is not running", fault.StartPCSCD
	case pcsc.SecurityViolation:
		e.Kind, e.Message, e.Next.Do = fault.DeviceAbsent, "pcscd does not let this user use cards", fault.AllowPCSCD
	case pcsc.NoReaders, pcsc.UnknownReader, pcsc.ReaderUnavailable:
		e.Kind, e.Message, e.Next.Do = fault.DeviceAbsent, fmt.Sprintf("there is no reader %q", reader), fault.InsertCard
	case pcsc.NoSmartcard, pcsc.RemovedCard:
		e.Kind, e.Message, e.Next.Do = fault.DeviceAbsent, fmt.Sprintf("there is no card in the reader %q", reader), fault.InsertCard
	case pcsc.ResetCard, pcsc.InvalidHandle:
		e.Kind, e.Message, e.Hint = fault.DeviceAbsent, "the connection to the card was cut", "try again"
	case pcsc.SharingViolation:
		e.Kind, e.Message, e.Hint = fault.Busy, "the reader is in use by another program", "try again when it is done"
		if scdaemonRuns() {
			e.Message, e.Next.Do = "the reader is in use by scdaemon", fault.ShareCard
		}
		e.RetryAfter = 2 * time.Second
	case pcsc.UnresponsiveCard, pcsc.UnpoweredCard:
		e.Message, e.Hint = "the card does not answer its reader", reinsert
	default:
		e.Message, e.Hint = "the connection to the card failed", reinsert
	}
	return e
}
