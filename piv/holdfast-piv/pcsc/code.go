package pcsc

import "C"

import "fmt"

// A Code is the error code of a PC/SC function (PC/SC part 5; the numbers are those of
// pcsclite.h).
type Code uint32

// The codes that callers distinguish.
const (
	InvalidHandle      Code = 0x80100003 // pcscd has restarted since
	InsufficientBuffer Code = 0x80100008
	UnknownReader      Code = 0x80100009
	Timeout            Code = 0x8010000a
	SharingViolation   Code = 0x8010000b
	NoSmartcard        Code = 0x8010000c
	ProtoMismatch      Code = 0x8010000f
	CommError          Code = 0x80100013
	NotTransacted      Code = 0x80100016 // the card was removed during a command, or its driver failed
	ReaderUnavailable  Code = 0x80100017
	NoService          Code = 0x8010001d // pcscd does not run
	ServiceStopped     Code = 0x8010001e
	NoReaders          Code = 0x8010002e
	UnresponsiveCard   Code = 0x80100066
	UnpoweredCard      Code = 0x80100067
	ResetCard          Code = 0x80100068
	RemovedCard        Code = 0x80100069
	SecurityViolation  Code = 0x8010006a // a polkit rule of pcscd's
)

// Error returns the number: the caller words it for people.
func (c Code) Error() string { return fmt.Sprintf("PC/SC error %#08x", uint32(c)) }

func check(rc C.long) error {
	if rc == 0 {
		return nil
	}
	return Code(uint32(rc))
}
