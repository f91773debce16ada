package tpm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/google/go-tpm/tpm2"
)

// A link is a Conn that checks and retries. A device without a resource
// manager has one link, behind the kernel's resource manager each loaded key
// has its own. A link is used by the owner of the device only.
type link struct {
	conn   Conn
	lost   bool // a reply was lost or damaged: the device's state is unknown
	closed bool
	reply  [maxReply]byte
	build  [256]byte // room for a command laid out by hand
}

// send sends a command and returns the reply, which is valid until the next
// send. It repeats the command while the device asks for that, until ctx ends.
func (l *link) send(ctx context.Context, command []byte) ([]byte, error) {
	var rc tpm2.TPMRC
	for try := 0; ; try++ {
		reply, err := l.once(ctx, command)
		if err == nil && !retryable(replyCode(reply)) {
			return reply, nil
		}
		if err == nil {
			rc = replyCode(reply)
			err = pause(ctx, try)
		}
		if err != nil && try > 0 && ended(ctx, err) != nil {
			err = &retryError{rc: rc, err: err}
		}
		if err != nil {
			return nil, err
		}
	}
}

// once sends a command and returns a reply with a valid header.
func (l *link) once(ctx context.Context, command []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n, err := l.conn.Exchange(ctx, command, l.reply[:])
	if err == nil {
		err = checkHeader(command, l.reply[:max(n, 0)])
	}
	if err != nil {
		l.lost = true
		return nil, &lostError{err: err, ended: ended(ctx, err)}
	}
	return l.reply[:n], nil
}

// ended returns ctx's error, also where the connection noticed the deadline an
// instant before ctx did.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// drop closes the connection without waiting: closing a device file waits for
// a command in flight, and that may never end.
func (l *link) drop() {
	if l == nil || l.closed {
		return
	}
	l.closed = true
	go l.conn.Close()
}

// checkHeader checks a reply against TPM 2.0 Part 1, section 16.9: the size is the
// reply's, errors are a header alone, success carries the command's tag.
func checkHeader(command, reply []byte) error {
	if len(reply) < headerSize || binary.BigEndian.Uint32(reply[2:]) != uint32(len(reply)) {
		return fmt.Errorf("%w: the size is wrong", errMalformed)
	}
	failed := replyCode(reply) != tpm2.TPMRCSuccess
	if failed && len(reply) != headerSize {
		return fmt.Errorf("%w: an error with a body", errMalformed)
	}
	if !failed && !bytes.Equal(reply[:2], command[:2]) {
		return fmt.Errorf("%w: the tag is not the command's", errMalformed)
	}
	return nil
}

// replyCode returns the response code of a reply that is at least a header.
func replyCode(reply []byte) tpm2.TPMRC { return tpm2.TPMRC(binary.BigEndian.Uint32(reply[6:])) }

// A caller adapts a link to go-tpm for the length of one context.
type caller struct {
	ctx  context.Context
	link *link
}

// Send implements go-tpm's transport.TPM.
func (c caller) Send(command []byte) ([]byte, error) {
	reply, err := c.link.send(c.ctx, command)
	return bytes.Clone(reply), err
}

// on returns the link for go-tpm commands that end with ctx.
func (l *link) on(ctx context.Context) caller { return caller{ctx, l} }
