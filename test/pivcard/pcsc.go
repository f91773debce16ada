package pivcard

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
	"unsafe"
)

// Commands of pcscd's own socket (pcsc-lite 1.9, winscard_msg.h). Numbers are
// in the machine's byte order.
const (
	pcscEstablish  = 0x01
	pcscConnect    = 0x04
	pcscDisconnect = 0x06
	pcscBegin      = 0x07
	pcscTransmit   = 0x09
	pcscVersion    = 0x11
	pcscReaders    = 0x12
)

// Constants of the PC/SC interface (pcsclite.h).
const (
	shareExclusive = 1
	shareShared    = 2
	protocolT1     = 2
	present        = 0x0004
)

// maxReaders is how many readers a pcscd lists (PCSCLITE_MAX_READERS_CONTEXTS).
const maxReaders = 16

// pcscTimeout bounds one exchange with pcscd.
const pcscTimeout = 10 * time.Second

// A pcscClient speaks to pcscd as libpcsclite does, without cgo.
type pcscClient struct {
	conn    net.Conn
	context uint32
	card    int32
}

// readerState is READER_STATE of a 64-bit pcscd (eventhandler.h).
type readerState struct {
	Name      [128]byte
	Events    uint32
	State     uint32
	Sharing   int32
	ATR       [33]byte
	_         [3]byte
	ATRLength uint64
}

func (r readerState) name() string { return string(bytes.TrimRight(r.Name[:], "\x00")) }

func (r readerState) hasCard() bool { return r.State&present != 0 && r.ATRLength > 0 }

// dialPCSC connects and agrees on the protocol's version, 4.4.
func dialPCSC(socket string) (*pcscClient, error) {
	conn, err := net.DialTimeout("unix", socket, pcscTimeout)
	if err != nil {
		return nil, err
	}
	c := &pcscClient{conn: conn}
	version := struct {
		Major, Minor int32
		Result       uint32
	}{Major: 4, Minor: 4}
	if err := c.call(pcscVersion, &version); err != nil {
		conn.Close()
		return nil, fmt.Errorf("pcscd: version: %w", err)
	}
	if version.Result != 0 {
		conn.Close()
		return nil, fmt.Errorf("pcscd: version: error %#x", version.Result)
	}
	return c, nil
}

// close gives the card back and hangs up. When it returns, pcscd lets others
// have the card.
func (c *pcscClient) close() {
	if c == nil {
		return
	}
	if c.card != 0 {
		body := struct {
			Card        int32
			Disposition uint32 // 0 leaves the card as it is
			Result      uint32
		}{Card: c.card}
		_ = c.call(pcscDisconnect, &body) // a card that is gone needs none
	}
	c.conn.Close()
}

// send writes a command: the size of its body, its number, its body, and what
// comes after the body.
func (c *pcscClient) send(command uint32, body any, after ...byte) error {
	m := make([]byte, 8)
	if body != nil {
		var err error
		if m, err = binary.Append(m, binary.NativeEndian, body); err != nil {
			return err
		}
	}
	binary.NativeEndian.PutUint32(m, uint32(len(m)-8))
	binary.NativeEndian.PutUint32(m[4:], command)
	if err := c.conn.SetDeadline(time.Now().Add(pcscTimeout)); err != nil {
		return err
	}
	_, err := c.conn.Write(append(m, after...))
	return err
}

func (c *pcscClient) read(to any) error { return binary.Read(c.conn, binary.NativeEndian, to) }

// call sends body and reads the answer, which has the same shape, into it.
func (c *pcscClient) call(command uint32, body any) error {
	if err := c.send(command, body); err != nil {
		return err
	}
	return c.read(body)
}

// readers lists the readers that pcscd has.
func (c *pcscClient) readers() ([]readerState, error) {
	var all [maxReaders]readerState
	if err := c.send(pcscReaders, nil); err != nil {
		return nil, err
	}
	if err := c.read(&all); err != nil {
		return nil, err
	}
	var there []readerState
	for _, r := range all {
		if r.Name[0] != 0 {
			there = append(there, r)
		}
	}
	return there, nil
}

// A pcscError is a result of PC/SC that is not success, such as 0x8010000b:
// another program has the card.
type pcscError uint32

func (e pcscError) Error() string { return fmt.Sprintf("PC/SC error %#08x", uint32(e)) }

func result(r uint32) error {
	if r != 0 {
		return pcscError(r)
	}
	return nil
}

// connect opens the card in a reader.
func (c *pcscClient) connect(reader string, share uint32) error {
	establish := struct{ Scope, Context, Result uint32 }{Scope: 2}
	if err := c.call(pcscEstablish, &establish); err != nil {
		return err
	}
	if err := result(establish.Result); err != nil {
		return err
	}
	c.context = establish.Context
	body := struct {
		Context          uint32
		Reader           [128]byte
		Share, Protocols uint32
		Card             int32
		Active, Result   uint32
	}{Context: c.context, Share: share, Protocols: protocolT1}
	copy(body.Reader[:], reader)
	if err := c.call(pcscConnect, &body); err != nil {
		return err
	}
	if err := result(body.Result); err != nil {
		return err
	}
	c.card = body.Card
	return nil
}

// begin starts a transaction: other clients that share the card wait.
func (c *pcscClient) begin() error {
	body := struct {
		Card   int32
		Result uint32
	}{Card: c.card}
	if err := c.call(pcscBegin, &body); err != nil {
		return err
	}
	return result(body.Result)
}

// transmit sends one APDU to the card that is open.
func (c *pcscClient) transmit(apdu []byte) ([]byte, error) {
	type header struct {
		Card                  int32
		SendProtocol, SendPCI uint32
		SendLength            uint32
		RecvProtocol, RecvPCI uint32
		RecvLength            uint32
		Result                uint32
	}
	const pci = uint32(2 * unsafe.Sizeof(uintptr(0))) // SCARD_IO_REQUEST: two longs
	h := header{c.card, protocolT1, pci, uint32(len(apdu)), 0, pci, 65_546, 0}
	if err := c.send(pcscTransmit, h, apdu...); err != nil {
		return nil, err
	}
	if err := c.read(&h); err != nil {
		return nil, err
	}
	if err := result(h.Result); err != nil {
		return nil, err
	}
	answer := make([]byte, h.RecvLength)
	_, err := io.ReadFull(c.conn, answer)
	return answer, err
}
