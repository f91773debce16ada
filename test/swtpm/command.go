package swtpm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/google/go-tpm/tpm2"
)

// maxReply is more than any TPM 2.0 answers.
const maxReply = 8192

// A Conn is a bare connection to a TPM, or to a [Proxy]. It is go-tpm's
// transport.TPMCloser and package tpm's tpm.Conn.
type Conn struct{ c net.Conn }

// Dial connects to the TPM. No other connection is served until the Conn is closed.
func (t *TPM) Dial() (*Conn, error) { return dial(t.Path) }

func dial(path string) (*Conn, error) {
	c, err := net.DialTimeout("unix", path, testTimeout)
	if err != nil {
		return nil, err
	}
	return &Conn{c}, nil
}

// Send writes one command and reads its reply.
func (c *Conn) Send(command []byte) ([]byte, error) {
	if _, err := c.c.Write(command); err != nil {
		return nil, err
	}
	return readMessage(c.c)
}

// Exchange is Send with a context and the caller's room for the reply, as
// package tpm wants it of a tpm.Conn. When ctx ends first the Conn is only good
// for Close.
func (c *Conn) Exchange(ctx context.Context, command, reply []byte) (int, error) {
	defer context.AfterFunc(ctx, func() { _ = c.c.SetDeadline(time.Unix(1, 0)) })()
	m, err := c.Send(command)
	if err != nil {
		return 0, errors.Join(err, ctx.Err())
	}
	if len(m) > len(reply) {
		return 0, fmt.Errorf("a reply of %d bytes", len(m))
	}
	return copy(reply, m), nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.c.Close() }

// readMessage reads a command or a reply: tag, size, code, and the rest of its
// size (TPM 2.0 Part 1, section 18).
func readMessage(r io.Reader) ([]byte, error) {
	m := make([]byte, 10, 256)
	if _, err := io.ReadFull(r, m); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(m[2:])
	if size < 10 || size > maxReply {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	m = append(m, make([]byte, size-10)...)
	_, err := io.ReadFull(r, m[10:])
	return m, err
}

// codeOf returns a command's or reply's code: its bytes 6 to 9.
func codeOf(m []byte) uint32 { return binary.BigEndian.Uint32(m[6:]) }

// message lays out a command without sessions.
func message(cc tpm2.TPMCC, words ...any) []byte {
	return build(tpm2.TPMSTNoSessions, uint32(cc), words)
}

// withPassword lays out a command that one handle with empty auth authorises.
func withPassword(cc tpm2.TPMCC, handle tpm2.TPMHandle) []byte {
	area := []any{uint32(9), uint32(tpm2.TPMRSPW), uint16(0), byte(0), uint16(0)}
	return build(tpm2.TPMSTSessions, uint32(cc), append([]any{uint32(handle)}, area...))
}

// build lays out a command or a reply: header, then words.
func build(tag tpm2.TPMST, code uint32, words []any) []byte {
	m := binary.BigEndian.AppendUint16(nil, uint16(tag))
	m = binary.BigEndian.AppendUint32(m, 0)
	m = binary.BigEndian.AppendUint32(m, code)
	for _, w := range words {
		m, _ = binary.Append(m, binary.BigEndian, w) // fixed-size values cannot fail
	}
	binary.BigEndian.PutUint32(m[2:], uint32(len(m)))
	return m
}

// answers reports whether a TPM is there and takes commands.
func answers(path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	c, err := dial(path)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err = c.Send(message(tpm2.TPMCCGetTestResult))
	return err
}

// Run sends one command on a connection of its own and returns the reply.
func (t *TPM) Run(command []byte) []byte {
	t.tb.Helper()
	c, err := t.Dial()
	if err != nil {
		t.tb.Fatalf("swtpm: %v", err)
		return nil
	}
	defer c.Close()
	if err := c.c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.tb.Fatalf("swtpm: %v", err)
	}
	reply, err := c.Send(command)
	if err != nil {
		t.tb.Fatalf("swtpm: command %#x: %v", codeOf(command), err)
	}
	return reply
}

// must runs a command that has to succeed.
func (t *TPM) must(command []byte) []byte {
	t.tb.Helper()
	reply := t.Run(command)
	if rc := codeOf(reply); rc != 0 {
		t.tb.Fatalf("swtpm: command %#x: response code %#x", codeOf(command), rc)
	}
	return reply
}

// Startup sends TPM2_Startup(CLEAR), which a TPM wants after Reset.
func (t *TPM) Startup() {
	t.tb.Helper()
	t.must(message(tpm2.TPMCCStartup, uint16(tpm2.TPMSUClear)))
}

// Shutdown sends TPM2_Shutdown(CLEAR), without which a Kill after the use of a
// key with dictionary-attack protection counts as a failed try.
func (t *TPM) Shutdown() {
	t.tb.Helper()
	t.must(message(tpm2.TPMCCShutdown, uint16(tpm2.TPMSUClear)))
}

// Clear sends TPM2_Clear: every key made before is void and the seeds are new.
func (t *TPM) Clear() {
	t.tb.Helper()
	t.must(withPassword(tpm2.TPMCCClear, tpm2.TPMRHLockout))
}

// ResetLockout ends a dictionary-attack lockout and forgets the wrong tries.
func (t *TPM) ResetLockout() {
	t.tb.Helper()
	t.must(withPassword(tpm2.TPMCCDictionaryAttackLockReset, tpm2.TPMRHLockout))
}

// Property returns the value of a TPM_PT property, such as TPMPTLockoutCounter.
func (t *TPM) Property(p tpm2.TPMPT) uint32 {
	t.tb.Helper()
	reply := t.must(capability(tpm2.TPMCapTPMProperties, uint32(p), 1))
	if len(reply) < 27 || binary.BigEndian.Uint32(reply[19:]) != uint32(p) {
		t.tb.Fatalf("swtpm: the TPM has no property %#x", uint32(p))
	}
	return binary.BigEndian.Uint32(reply[23:])
}

// Handles lists what the TPM holds: transient objects, loaded and saved
// sessions, and persistent objects, in the order of their handles.
func (t *TPM) Handles() []tpm2.TPMHandle {
	t.tb.Helper()
	var all []tpm2.TPMHandle
	for _, first := range []uint32{0x02000000, 0x03000000, 0x80000000, 0x81000000} {
		all = append(all, handlesOf(t.must(capability(tpm2.TPMCapHandles, first, 254)))...)
	}
	return all
}

func capability(kind tpm2.TPMCap, first, count uint32) []byte {
	return message(tpm2.TPMCCGetCapability, uint32(kind), first, count)
}

// handlesOf reads the list of words in a reply to TPM2_GetCapability: header,
// moreData, capability, count, words (TPM 2.0 Part 3, section 30.2).
func handlesOf(reply []byte) []tpm2.TPMHandle {
	var list []tpm2.TPMHandle
	for rest := reply[19:]; len(rest) >= 4; rest = rest[4:] {
		list = append(list, tpm2.TPMHandle(binary.BigEndian.Uint32(rest)))
	}
	return list
}
