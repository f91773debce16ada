package main

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/agent/keys"
	"holdfast/piv/wire"
	"holdfast/test/daemon"
	"holdfast/test/pivcard"
)

// patience bounds every wait of a test.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(confinedVariable) != "" {
		runtime.LockOSThread()
		os.Exit(confined())
	}
	code := m.Run()
	daemon.Remove()
	os.Exit(code)
}

// A child is a running holdfast-piv.
type child struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  bytes.Buffer
	id   uint64
	got  chan *wire.Reply
	done chan struct{} // closed when the process has ended
	once sync.Once
}

// start runs the child for a rig. It is killed when the test ends.
func start(t testing.TB, rig *pivcard.Rig) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(daemon.Program(t, daemon.PIVProgram)), got: make(chan *wire.Reply, 8), done: make(chan struct{})}
	c.launch(rig)
	return c
}

func (c *child) launch(rig *pivcard.Rig) {
	c.t.Helper()
	c.cmd.Env = append(os.Environ(), rig.Env()...)
	c.cmd.Stderr = &c.log
	in, err := c.cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.in = in
	go c.read(out)
	c.t.Cleanup(c.kill)
}

func (c *child) read(out io.Reader) {
	for {
		reply := new(wire.Reply)
		if wire.Read(out, reply) != nil {
			break
		}
		c.got <- reply
	}
	c.cmd.Wait()
	close(c.done)
}

func (c *child) kill() {
	c.once.Do(func() { c.cmd.Process.Kill() })
	<-c.done
	for _, secret := range []string{ownPIN, ownPUK, "271828", "666666", base64.StdEncoding.EncodeToString([]byte(ownPIN))} {
		if strings.Contains(c.log.String(), secret) {
			c.t.Errorf("the log holds %q: %s", secret, &c.log)
		}
	}
}

// ended waits until the process has ended by itself, and returns its exit code.
func (c *child) ended() int {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		c.t.Fatal("the child does not end")
	}
	return c.cmd.ProcessState.ExitCode()
}

// end closes the child's input and waits until it has gone, in order.
func (c *child) end() {
	c.t.Helper()
	c.in.Close()
	if code := c.ended(); code != 0 {
		c.t.Fatalf("exit code %d: %s", code, &c.log)
	}
}

// send sends a request without waiting for the reply, and returns its number.
func (c *child) send(r wire.Request) uint64 {
	c.t.Helper()
	c.id++
	r.ID = c.id
	if err := wire.Write(c.in, &r); err != nil {
		c.t.Fatalf("%s: %v", r.Op, err)
	}
	return r.ID
}

// answer waits for the next reply.
func (c *child) answer() *wire.Reply {
	c.t.Helper()
	select {
	case reply := <-c.got:
		return reply
	case <-c.done:
		c.t.Fatalf("the child has ended: %s", &c.log)
	case <-time.After(patience):
		c.t.Fatal("no reply")
	}
	return nil
}

// do sends a request and returns its reply, which must carry its number.
func (c *child) do(r wire.Request) *wire.Reply {
	c.t.Helper()
	id := c.send(r)
	reply := c.answer()
	if reply.ID != id {
		c.t.Fatalf("%s: the reply is to %d, not %d", r.Op, reply.ID, id)
	}
	return reply
}

// must is do for what has to succeed.
func (c *child) must(r wire.Request) *wire.Reply {
	c.t.Helper()
	reply := c.do(r)
	if reply.Error != nil {
		c.t.Fatalf("%s: %+v", r.Op, *reply.Error)
	}
	return reply
}

// fails is do for what has to fail in this way.
func (c *child) fails(r wire.Request, kind keys.Kind) *wire.Error {
	c.t.Helper()
	reply := c.do(r)
	if reply.Error == nil || reply.Error.Kind != kind {
		c.t.Fatalf("%s: %+v, want %s; %s", r.Op, reply.Error, kind, &c.log)
	}
	return reply.Error
}

// What an owner has set on the cards of the tests.
var (
	ownPIN    = "314159"
	ownPUK    = "27182818"
	ownManage = bytes.Repeat([]byte{0xa5, 0x5a, 0x42}, 8)
)

// A desk is a rig with one card in it and a child.
type desk struct {
	*child
	rig  *pivcard.Rig
	card *pivcard.Card
}

// setUp starts a rig with one card that its owner has set up, and a child.
func setUp(t testing.TB, o pivcard.Options) *desk {
	t.Helper()
	if o.PIN == "" {
		o.PIN, o.PUK, o.Manage = ownPIN, ownPUK, ownManage
	}
	rig := pivcard.Start(t, 2)
	card := rig.NewCard(o)
	rig.Insert(card)
	return &desk{start(t, rig), rig, card}
}

// await waits until something is so.
func (d *desk) await(what string, so func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// again kills the child and starts another.
func (d *desk) again() {
	d.t.Helper()
	d.kill()
	d.child = start(d.t, d.rig)
}

// sent expects so many PINs to have been sent to the card so far.
func (d *desk) sent(want int) {
	d.t.Helper()
	if n := d.card.PINTries(); n != want {
		d.t.Errorf("the card was sent %d PINs, want %d", n, want)
	}
}

// on returns a request for the desk's card.
func (d *desk) on(op wire.Op) wire.Request {
	return wire.Request{Op: op, Reader: d.rig.ReaderOf(d.card), Serial: d.card.Serial}
}

// A made is a key on the card and how to use it.
type made struct {
	*desk
	slot       string
	public     []byte
	scheme     keys.Scheme
	pin, touch keys.Policy
	reply      *wire.Reply
}

// key makes a key.
func (d *desk) key(slot string, a keys.Algorithm, bits int, pin, touch keys.Policy) *made {
	d.t.Helper()
	r := d.on(wire.Generate)
	r.Slot, r.Algorithm, r.RSABits, r.PINPolicy, r.TouchPolicy, r.ManagementKey = slot, string(a), bits, pin, touch, ownManage
	reply := d.must(r)
	scheme, err := keys.SchemeFor(a, keys.TLSClient)
	if err != nil {
		d.t.Fatal(err)
	}
	return &made{desk: d, slot: slot, public: reply.Slot.Public, scheme: scheme, pin: pin, touch: touch, reply: reply}
}

// on returns a request for the key.
func (m *made) on(op wire.Op) wire.Request {
	r := m.desk.on(op)
	r.Slot, r.Public, r.PINPolicy, r.TouchPolicy = m.slot, m.public, m.pin, m.touch
	return r
}

func (m *made) signing() wire.Request {
	r := m.on(wire.Sign)
	r.Scheme, r.Digest = m.scheme, m.scheme.Digest([]byte("message"))
	return r
}

func (m *made) unlocking(pin string) wire.Request {
	r := m.on(wire.Unlock)
	r.PIN, r.Until = []byte(pin), time.Now().Add(time.Minute)
	return r
}

// signs signs and verifies the signature.
func (m *made) signs() {
	m.t.Helper()
	r := m.signing()
	if err := m.verify(r, m.must(r)); err != nil {
		m.t.Error(err)
	}
}

func (m *made) verify(r wire.Request, reply *wire.Reply) error {
	public, err := x509.ParsePKIXPublicKey(m.public)
	if err != nil {
		return err
	}
	if len(reply.Signature) == 0 {
		return errors.New("no signature")
	}
	return keys.Verify(public, r.Scheme, r.Digest, reply.Signature)
}
