package piv_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv"
	"holdfast/piv/wire"
)

// A script is a child that a test has under its thumb: this test's own binary
// under another name. It holds card 7 in the only reader, does what the file
// beside it orders once, and keeps the card's state in another file, so that it
// outlives the child as a real card does.
type script struct {
	t    testing.TB
	path string
}

const scriptPrefix = "scripted-"

const scriptSerial, scriptReader = 7, "Scripted Reader"

// scriptCard is the card's state.
type scriptCard struct {
	PIN   string
	Tries int
	Wrong int // VERIFY that were refused, ever
	Sent  int // VERIFY with a PIN, ever
	Keys  map[string][]byte
	Gone  bool // the reader is empty
	Came  uint32
}

func newScript(t testing.TB) *script {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &script{t, filepath.Join(t.TempDir(), scriptPrefix+"piv")}
	if err := os.Symlink(self, s.path); err != nil {
		t.Fatal(err)
	}
	s.save(scriptCard{PIN: rightPIN, Tries: 3, Keys: map[string][]byte{}})
	return s
}

func (s *script) save(c scriptCard) { writeJSON(s.path+".card", c) }

func (s *script) card() scriptCard { return readCard(s.path + ".card") }

// change changes the card between two requests.
func (s *script) change(f func(*scriptCard)) {
	c := s.card()
	f(&c)
	s.save(c)
}

// order has the next request of kind op go wrong.
func (s *script) order(op wire.Op, flaw string) {
	if err := os.WriteFile(s.path+".order", []byte(string(op)+" "+flaw), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// starts returns how many children were started, watches how often one began to
// wait for a change.
func (s *script) starts() int  { return count(s.path + ".starts") }
func (s *script) watches() int { return count(s.path + ".watches") }

// note counts something in a file: one byte each time.
func note(path string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.WriteString("x"); err != nil {
		panic(err)
	}
}

func count(path string) int {
	b, _ := os.ReadFile(path) // none yet
	return len(b)
}

func (s *script) open(t testing.TB, change ...func(*piv.Config)) *piv.PIV {
	c := piv.Config{Program: s.path}
	for _, f := range change {
		f(&c)
	}
	return openPIV(t, c)
}

// create makes a key that needs no statement of the card's.
func (s *script) create(b *piv.PIV, o keys.OnCard) keys.Material {
	s.t.Helper()
	o.AllowUnattested = true
	return create(s.t, b, o)
}

func writeJSON(path string, v any) {
	text, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		panic(err)
	}
}

func readCard(path string) (c scriptCard) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		panic(err)
	}
	return c
}

// A scriptedChild is what runs under the script's name.
type scriptedChild struct {
	path string
	out  sync.Mutex
	mu   sync.Mutex // guards what follows
	kept map[string]time.Time
	lie  string // what to do to the next reply
}

func runScripted(path string) int {
	note(path + ".starts")
	c := &scriptedChild{path: path, kept: map[string]time.Time{}}
	for {
		r := new(wire.Request)
		if err := wire.Read(os.Stdin, r); err != nil {
			return 0
		}
		if r.Op == wire.Lock {
			c.lock(r)
			continue
		}
		go c.serve(r)
	}
}

func (c *scriptedChild) lock(r *wire.Request) {
	if c.ordered(r) {
		return
	}
	c.mu.Lock()
	for slot := range c.kept {
		if r.Slot == "" || r.Slot == slot {
			delete(c.kept, slot)
		}
	}
	c.mu.Unlock()
	c.say(&wire.Reply{ID: r.ID})
}

func (c *scriptedChild) say(reply *wire.Reply) {
	c.out.Lock()
	defer c.out.Unlock()
	_ = wire.Write(os.Stdout, reply)
}

func (c *scriptedChild) serve(r *wire.Request) {
	if c.ordered(r) {
		return
	}
	reply := &wire.Reply{ID: r.ID}
	if err := c.do(r, reply); err != nil {
		reply.Error = wire.FromError(err)
	}
	c.out.Lock()
	change := lies[c.lie]
	c.lie = ""
	c.out.Unlock()
	if change != nil {
		change(reply)
	}
	c.say(reply)
}

// lies are what a card can say that is well-formed and not true.
var lies = map[string]func(*wire.Reply){
	"lie: PIN policy":   func(r *wire.Reply) { r.Slot.PINPolicy = keys.PolicyAlways },
	"lie: touch policy": func(r *wire.Reply) { r.Slot.TouchPolicy = keys.PolicyCached },
	"lie: no key":       func(r *wire.Reply) { r.Slot.Public = nil },
	"lie: bad key":      func(r *wire.Reply) { r.Slot.Public = []byte("key") },
	"lie: no slot":      func(r *wire.Reply) { r.Slot = nil },
	"lie: P-384": func(r *wire.Reply) {
		private, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
		if err != nil {
			panic(err)
		}
		r.Slot.Public, err = x509.MarshalPKIXPublicKey(private.Public())
		if err != nil {
			panic(err)
		}
	},
	"lie: serial 0": func(r *wire.Reply) { r.Serial = 0 },
}

// ordered does what was ordered of this request, and reports whether that was
// all.
func (c *scriptedChild) ordered(r *wire.Request) bool {
	text, err := os.ReadFile(c.path + ".order")
	op, flaw, _ := strings.Cut(string(text), " ")
	if err != nil || op != string(r.Op) {
		return false
	}
	if flaw != "crash-always" && os.Remove(c.path+".order") != nil {
		return false // another child was faster
	}
	c.out.Lock()
	defer c.out.Unlock()
	if lies[flaw] != nil {
		c.lie = flaw
		return false
	}
	switch flaw {
	case "crash", "crash-always":
		os.Exit(3)
	case "hang":
		time.Sleep(time.Hour)
	case "slow":
		time.Sleep(300 * time.Millisecond)
		return false
	case "noise":
		fmt.Fprint(os.Stdout, "panic: this is no message\n")
	case "text":
		raw([]byte("hello"))
	case "two":
		raw([]byte(`{"id":1}{"id":2}`))
	case "unknown":
		raw(fmt.Appendf(nil, `{"id":%d,"colour":"red"}`, r.ID))
	case "wrong-id":
		_ = wire.Write(os.Stdout, &wire.Reply{ID: r.ID + 1})
	case "twice":
		_ = wire.Write(os.Stdout, &wire.Reply{ID: r.ID})
		_ = wire.Write(os.Stdout, &wire.Reply{ID: r.ID})
	case "huge":
		os.Stdout.Write([]byte{0xff, 0xff, 0xff, 0xff})
	case "half":
		os.Stdout.Write([]byte{0, 0, 0, 9, '{'})
		os.Exit(3)
	case "empty":
		_ = wire.Write(os.Stdout, &wire.Reply{ID: r.ID})
	case "close":
		os.Stdout.Close()
		time.Sleep(time.Hour)
	case "chatter in lines":
		os.Stderr.Write(bytes.Repeat([]byte("a long complaint \n"), 1<<12))
		return false
	case "chatter":
		os.Stderr.Write(bytes.Repeat([]byte("a long complaint "), 1<<16))
		return false
	}
	return true
}

func raw(body []byte) {
	os.Stdout.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
}

func (c *scriptedChild) do(r *wire.Request, reply *wire.Reply) error {
	card := readCard(c.path + ".card")
	switch r.Op {
	case wire.Readers:
		return c.readers(r, reply)
	case wire.Identify:
		reply.Serial, reply.Firmware = scriptSerial, "5.4.3"
		return nil
	case wire.Inspect:
		reply.Card = &keys.Card{Serial: scriptSerial}
		for slot := range card.Keys {
			reply.Card.Slots = append(reply.Card.Slots, keys.CardSlot{Slot: slot})
		}
		return nil
	case wire.Generate:
		return c.generate(card, r, reply)
	case wire.Slot:
		if len(r.PIN) > 0 {
			if err := c.verify(card, r); err != nil {
				return err
			}
		}
		private, err := x509.ParseECPrivateKey(card.Keys[r.Slot])
		if err != nil {
			return &fault.Error{Kind: fault.KeyLost, Message: "no key"}
		}
		reply.Slot = slotFor(r, private)
		reply.Slot.PINPolicy = ""
		return nil
	case wire.Unlock:
		return c.unlock(card, r)
	case wire.Sign:
		return c.sign(card, r, reply)
	case wire.ChangePIN, wire.Unblock:
		card.PIN, card.Tries = string(r.New), 3
		writeJSON(c.path+".card", card)
		return nil
	}
	return &fault.Error{Kind: fault.BadRequest, Message: "not in the script"}
}

// readers looks often: the script has no events.
func (c *scriptedChild) readers(r *wire.Request, reply *wire.Reply) error {
	if r.Wait > 0 {
		note(c.path + ".watches")
	}
	for deadline := time.Now().Add(r.Wait); ; time.Sleep(2 * time.Millisecond) {
		card := readCard(c.path + ".card")
		now := wire.Reader{Name: scriptReader, Present: !card.Gone, Changes: card.Came}
		if len(r.Known) != 1 || r.Known[0] != now || time.Now().After(deadline) {
			reply.Readers = []wire.Reader{now}
			return nil
		}
	}
}

func (c *scriptedChild) generate(card scriptCard, r *wire.Request, reply *wire.Reply) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if card.Keys[r.Slot], err = x509.MarshalECPrivateKey(private); err != nil {
		return err
	}
	writeJSON(c.path+".card", card)
	reply.Slot = slotFor(r, private)
	return nil
}

func slotFor(r *wire.Request, private *ecdsa.PrivateKey) *keys.CardSlot {
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		panic(err)
	}
	return &keys.CardSlot{Slot: r.Slot, Algorithm: keys.ES256, Public: public, PINPolicy: r.PINPolicy}
}

func (c *scriptedChild) unlock(card scriptCard, r *wire.Request) error {
	if err := c.verify(card, r); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept[r.Slot] = r.Until
	return nil
}

// verify is VERIFY as the real child does it: never the last try.
func (c *scriptedChild) verify(card scriptCard, r *wire.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if card.Tries <= 1 {
		return &wire.Error{Kind: fault.PINBlocked, Message: "one try is left", Tries: &card.Tries, Unsent: true}
	}
	card.Sent++
	if string(r.PIN) != card.PIN {
		card.Tries--
		card.Wrong++
		writeJSON(c.path+".card", card)
		clear(c.kept)
		return &wire.Error{Kind: fault.PINRequired, Message: "wrong PIN", Tries: &card.Tries}
	}
	card.Tries = 3
	writeJSON(c.path+".card", card)
	return nil
}

func (c *scriptedChild) sign(card scriptCard, r *wire.Request, reply *wire.Reply) error {
	c.mu.Lock()
	kept := time.Now().Before(c.kept[r.Slot])
	c.mu.Unlock()
	if r.PINPolicy != keys.PolicyNever && !kept {
		return &fault.Error{Kind: fault.PINRequired, Message: "the child keeps no PIN"}
	}
	private, err := x509.ParseECPrivateKey(card.Keys[r.Slot])
	if err != nil {
		return &fault.Error{Kind: fault.KeyLost, Message: "no key"}
	}
	reply.Signature, err = private.Sign(rand.Reader, r.Digest, crypto.SHA256)
	return err
}
