package pivcard

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"syscall"
)

// Messages of one byte in vpcd's protocol (vsmartcard, virtualsmartcard
// README): two bytes of length, then either one of these or an APDU.
const (
	vpcdOff   = 0
	vpcdOn    = 1
	vpcdReset = 2
	vpcdATR   = 4
)

// answerToReset is that of a YubiKey 5.
var answerToReset = []byte{
	0x3b, 0xfd, 0x13, 0x00, 0x00, 0x81, 0x31, 0xfe, 0x15, 0x80, 0x73, 0xc0,
	0x21, 0xc0, 0x57, 0x59, 0x75, 0x62, 0x69, 0x4b, 0x65, 0x79, 0x40,
}

// An insertion is a card in a reader.
type insertion struct {
	card *Card
	conn *net.TCPConn
	gone chan struct{} // closed by end
	left chan struct{} // closed when the card is about to leave
	once sync.Once
	done chan struct{} // closed when nothing of it runs any more
}

// serve answers the reader until one side hangs up.
func (i *insertion) serve() {
	defer close(i.done)
	defer i.conn.Close()
	defer i.card.powerOff()
	defer close(i.left)
	reader := quick{i.conn}
	for {
		message, err := readMessage(reader)
		if err != nil {
			return
		}
		answer, stays := i.card.message(message, i.gone)
		if !stays {
			return
		}
		if answer == nil {
			continue
		}
		if err := writeMessage(i.conn, answer); err != nil || len(answer) == 0 {
			return // vpcd would wait for the bytes of an empty answer
		}
	}
}

// end takes the card out and waits until it is. It may be called again.
func (i *insertion) end() {
	i.once.Do(func() { close(i.gone) })
	i.conn.Close()
	<-i.done
}

// fallen reports whether the card has left, or is about to, without end.
func (i *insertion) fallen() bool { return closed(i.left) && !closed(i.gone) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// message does what the reader says. No answer is due when it is nil.
func (c *Card) message(m []byte, gone <-chan struct{}) (answer []byte, stays bool) {
	if len(m) != 1 {
		return c.transmit(m, gone)
	}
	switch m[0] {
	case vpcdOff, vpcdOn, vpcdReset:
		c.powerOff()
	case vpcdATR:
		return answerToReset, true
	}
	return nil, true
}

// powerOff is what a power cut and a reset do: all that was verified and
// selected is forgotten.
func (c *Card) powerOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.power, c.endless = power{}, false
	c.forget()
}

// transmit answers an APDU, unless a fault does.
func (c *Card) transmit(raw []byte, gone <-chan struct{}) (answer []byte, stays bool) {
	c.mu.Lock()
	c.record(raw)
	if c.endless = c.endless && instructionOf(raw) == GetResponse; c.endless {
		c.mu.Unlock()
		return []byte{0x61, 0x00}, true
	}
	f := c.struck(raw)
	c.mu.Unlock()
	if f == nil {
		return c.run(raw, gone), true
	}
	return f.strike(&occasion{c, raw, gone})
}

// run executes an APDU, and waits for a touch where it needs one.
func (c *Card) run(raw []byte, gone <-chan struct{}) []byte {
	answer, s := c.locked(func() ([]byte, status) { return c.handle(raw) })
	if s != touchWanted {
		return answer
	}
	if !c.awaitTouch(gone) {
		return notSatisfied.bytes()
	}
	answer, _ = c.locked(func() ([]byte, status) {
		data, s := c.execute(c.waiting)
		c.once = false
		return c.deliver(data, s, c.waiting.extended), s
	})
	return answer
}

func (c *Card) locked(f func() ([]byte, status)) ([]byte, status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f()
}

// quick acknowledges at once what it reads: vpcd sends length and payload
// apart, and would wait 40 ms between them.
type quick struct{ conn *net.TCPConn }

func (q quick) Read(b []byte) (int, error) {
	raw, err := q.conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1) // slow without
	})
	if err != nil {
		return 0, err
	}
	return q.conn.Read(b)
}

func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	m := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, m)
	return m, err
}

func writeMessage(w io.Writer, m []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
	return err
}
