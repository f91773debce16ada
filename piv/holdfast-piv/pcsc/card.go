package pcsc

// #include <stdlib.h>
// #include <winscard.h>
//
// static const SCARD_IO_REQUEST *pci(DWORD protocol) {
//	return protocol == SCARD_PROTOCOL_T0 ? SCARD_PCI_T0 : SCARD_PCI_T1;
// }
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// A Card is a connection to the card in one reader. It is not safe for
// concurrent use.
type Card struct {
	session  *session // nil when the connection is borrowed
	handle   C.SCARDHANDLE
	protocol C.DWORD
}

// Connect opens the card in the reader for this program alone.
func Connect(reader string) (*Card, error) {
	s, err := establish()
	if err != nil {
		return nil, err
	}
	name := C.CString(reader)
	defer C.free(unsafe.Pointer(name))
	c := &Card{session: s}
	err = check(C.SCardConnect(s.handle, name, C.SCARD_SHARE_EXCLUSIVE,
		C.SCARD_PROTOCOL_T0|C.SCARD_PROTOCOL_T1, &c.handle, &c.protocol))
	if err != nil {
		s.release()
		return nil, err
	}
	return c, nil
}

// Borrow returns a connection that other code in this process has opened with protocol
// T=1, by its SCARDHANDLE. That code closes it.
func Borrow(handle int64) *Card {
	return &Card{handle: C.SCARDHANDLE(handle), protocol: C.SCARD_PROTOCOL_T1}
}

// Close ends the connection and leaves the card as it is. It leaves a borrowed
// connection open.
func (c *Card) Close() {
	if c.session == nil {
		return
	}
	C.SCardDisconnect(c.handle, C.SCARD_LEAVE_CARD)
	c.session.release()
}

// Reset ends the connection, also a borrowed one, and resets the card, which forgets
// verified secrets.
func (c *Card) Reset() error {
	err := check(C.SCardDisconnect(c.handle, C.SCARD_RESET_CARD))
	if c.session != nil {
		c.session.release()
	}
	return err
}

// State returns nil when the connection can be used, or the [Code] of what happened to
// the card.
func (c *Card) State() error {
	return check(C.SCardStatus(c.handle, nil, nil, nil, nil, nil, nil))
}

// Bounds of an answer that comes in parts (ISO 7816-4, section 5.3.4).
const (
	maxReply = 64 << 10
	maxParts = maxReply / 128
)

// Transmit sends one command, which is a short or extended APDU, and returns the
// answer's data and status word. Parts that the card announces (61xx) are fetched,
// up to 64 KiB in 512 parts.
func (c *Card) Transmit(command []byte) ([]byte, uint16, error) {
	buffer := make([]byte, C.MAX_BUFFER_SIZE_EXTENDED)
	defer clear(buffer)
	data, status, err := c.exchange(command, buffer)
	for parts := 0; err == nil && status>>8 == 0x61; parts++ {
		var more []byte
		more, status, err = c.exchange([]byte{0, 0xc0, 0, 0, 0}, buffer)
		if data = append(data, more...); len(data) > maxReply || parts == maxParts {
			return nil, 0, errors.New("the card's answer is too long")
		}
	}
	if err != nil {
		return nil, 0, err
	}
	return data, status, nil
}

// exchange is one command and one answer. The data is a copy.
func (c *Card) exchange(command, buffer []byte) (data []byte, status uint16, err error) {
	if len(command) < 4 {
		return nil, 0, fmt.Errorf("a command of %d bytes", len(command))
	}
	n := C.DWORD(len(buffer))
	err = check(C.SCardTransmit(c.handle, C.pci(c.protocol),
		(*C.BYTE)(&command[0]), C.DWORD(len(command)), nil, (*C.BYTE)(&buffer[0]), &n))
	if err != nil {
		return nil, 0, err
	}
	if n < 2 || int(n) > len(buffer) {
		return nil, 0, fmt.Errorf("the card's answer has %d bytes", n)
	}
	end := buffer[n-2 : n]
	return append([]byte(nil), buffer[:n-2]...), uint16(end[0])<<8 | uint16(end[1]), nil
}
