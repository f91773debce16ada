package pcsc

// #cgo LDFLAGS: -Wl,--wrap=SCardConnect
// #include <stdlib.h>
// #include <winscard.h>
//
// void holdfast_lend(SCARDHANDLE card);
// LONG __real_SCardConnect(SCARDCONTEXT, LPCSTR, DWORD, DWORD, LPSCARDHANDLE, LPDWORD);
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

// A Card is a connection to the card in one reader, with a transaction: until it is
// closed, other programs can connect to the card, and their commands wait. It is not
// safe for concurrent use.
type Card struct {
	session  *session
	handle   C.SCARDHANDLE
	protocol C.DWORD
}

// maxResets bounds the resets of the card by other programs that one Connect survives.
const maxResets = 10

// Connect opens the card in the reader, which other programs may have open, and begins a
// transaction. While another program is in a transaction, Connect waits, without limit;
// nothing cancels that wait but the end of the process.
func Connect(reader string) (*Card, error) {
	s, err := establish()
	if err != nil {
		return nil, err
	}
	c := &Card{session: s}
	for range maxResets {
		if err = c.connect(reader); err != nil {
			break
		}
		if err = check(C.SCardBeginTransaction(c.handle)); err == nil {
			return c, nil
		}
		C.SCardDisconnect(c.handle, C.SCARD_LEAVE_CARD)
		if !errors.Is(err, ResetCard) { // by another program, since the connection was made
			break
		}
	}
	s.release()
	return nil, err
}

func (c *Card) connect(reader string) error {
	name := C.CString(reader)
	defer C.free(unsafe.Pointer(name))
	return check(C.__real_SCardConnect(c.session.handle, name, C.SCARD_SHARE_SHARED,
		C.SCARD_PROTOCOL_T0|C.SCARD_PROTOCOL_T1, &c.handle, &c.protocol))
}

// Lend makes this connection the one that piv-go gets when open calls piv.Open. piv-go's
// transaction is then a part of this one, and piv-go's Close ends both. Only one Lend may
// be in progress in the process.
func (c *Card) Lend(open func() error) error {
	if c.protocol != C.SCARD_PROTOCOL_T1 { // piv-go speaks no other one
		return ProtoMismatch
	}
	C.holdfast_lend(c.handle)
	defer C.holdfast_lend(0)
	return open()
}

// Close ends the connection and leaves the card as it is.
func (c *Card) Close() {
	C.SCardDisconnect(c.handle, C.SCARD_LEAVE_CARD) // piv-go may have done so
	c.session.release()
}

// Reset resets the card, which forgets verified secrets, and then ends the transaction:
// no other program's command comes before the reset.
func (c *Card) Reset() error {
	return check(C.SCardEndTransaction(c.handle, C.SCARD_RESET_CARD))
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
