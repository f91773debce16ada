package tpm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// maxReply bounds a reply in bytes. It is the kernel's own buffer size; no
// command used here comes near it.
const maxReply = 4096

// headerSize is the length of a reply header: tag, size, response code
// (TPM 2.0 Part 1, section 16).
const headerSize = 10

// A Conn carries one command and its reply at a time to a TPM. [Open] makes
// its own from [Config.Device]; tests supply others.
type Conn interface {
	// Exchange sends command and reads the reply into reply, which has room for
	// 4096 bytes, and returns the reply's length. When ctx ends first it returns
	// an error without delay. After an error the Conn is only good for Close.
	Exchange(ctx context.Context, command, reply []byte) (int, error)

	// Close ends the connection. It may be called from another goroutine.
	Close() error
}

// errMalformed marks a reply that no TPM sends.
var errMalformed = errors.New("malformed reply")

// past is a deadline that has been reached by any clock.
var past = time.Unix(1, 0)

// A socketConn talks to swtpm's data channel.
type socketConn struct{ net.Conn }

// dialSocket connects to a Unix socket. swtpm serves one connection and queues
// one more: EAGAIN means that connections we have dropped are not reaped yet.
func dialSocket(ctx context.Context, path string) (Conn, error) {
	var dialer net.Dialer
	for try := 0; ; try++ {
		c, err := dialer.DialContext(ctx, "unix", path)
		if err == nil {
			return socketConn{c}, nil
		}
		if !errors.Is(err, syscall.EAGAIN) {
			return nil, err
		}
		if pause(ctx, try) != nil {
			return nil, fmt.Errorf("connect %s: %w", path, context.Cause(ctx))
		}
	}
}

// Exchange sends a command and reads the reply; see [Conn].
func (c socketConn) Exchange(ctx context.Context, command, reply []byte) (int, error) {
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
	n, err := exchangeStream(c, command, reply)
	return n, endedFirst(ctx, stop, err)
}

// endedFirst returns err, or ctx's error when ctx ended before stop: then the
// deadline of the connection may still be pulled while the next command runs.
func endedFirst(ctx context.Context, stop func() bool, err error) error {
	if !stop() && err == nil {
		return ctx.Err()
	}
	return err
}

// exchangeStream is Exchange on a stream whose deadline is set.
func exchangeStream(c io.ReadWriter, command, reply []byte) (int, error) {
	if _, err := c.Write(command); err != nil {
		return 0, err
	}
	return readReply(c, reply)
}

// readReply reads as many bytes as the reply's header announces.
func readReply(r io.Reader, reply []byte) (int, error) {
	n, err := io.ReadAtLeast(r, reply, headerSize)
	if err != nil {
		return 0, err
	}
	size := binary.BigEndian.Uint32(reply[2:])
	if size < headerSize || size > uint32(len(reply)) || n > int(size) {
		return 0, fmt.Errorf("%w: %d bytes announced, %d came", errMalformed, size, n)
	}
	if _, err := io.ReadFull(r, reply[n:size]); err != nil {
		return 0, err
	}
	return int(size), nil
}

// A deviceConn talks to a TPM character device, normally /dev/tpmrm0.
type deviceConn struct{ file *os.File }

// openDevice opens the device for reading with deadlines, which takes a
// descriptor that is in non-blocking mode before os.NewFile sees it.
func openDevice(path string) (Conn, error) {
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return deviceConn{os.NewFile(uintptr(fd), path)}, nil
}

// Exchange writes from inside the wait for the reply. The kernel's read would
// block or return nothing until the command is done (tpm-dev-common.c), so the
// first read has to come after the poller's event, and the poller must be
// armed before the write or the event is lost.
func (c deviceConn) Exchange(ctx context.Context, command, reply []byte) (int, error) {
	deadline, _ := ctx.Deadline()
	if err := c.file.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.file.SetReadDeadline(past) })
	n, err := c.exchange(command, reply)
	return n, endedFirst(ctx, stop, err)
}

// exchange is Exchange on a descriptor whose deadline is set.
func (c deviceConn) exchange(command, reply []byte) (n int, err error) {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var ioErr error
	written := false
	err = raw.Read(func(fd uintptr) bool {
		if !written {
			written = true
			ioErr = writeWhole(int(fd), command)
			return ioErr != nil
		}
		n, ioErr = syscall.Read(int(fd), reply)
		return n > 0 || ioErr != nil && ioErr != syscall.EAGAIN
	})
	return n, errors.Join(err, ioErr)
}

// writeWhole writes a command in one piece, as the device requires.
func writeWhole(fd int, command []byte) error {
	n, err := syscall.Write(fd, command)
	if err == nil && n != len(command) {
		err = io.ErrShortWrite
	}
	return err
}

// Close closes the descriptor. The kernel makes that wait for a command in
// flight.
func (c deviceConn) Close() error { return c.file.Close() }
