package pivcard

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Firmware is a YubiKey's version: major, minor, patch.
type Firmware [3]byte

// String returns the version as people write it.
func (f Firmware) String() string { return fmt.Sprintf("%d.%d.%d", f[0], f[1], f[2]) }

// ParseFirmware reads a version such as 5.4.3.
func ParseFirmware(s string) (Firmware, error) {
	var f Firmware
	parts := strings.Split(s, ".")
	if len(parts) != len(f) {
		return f, fmt.Errorf("%q is no version such as 5.4.3", s)
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 8)
		if err != nil {
			return f, fmt.Errorf("%q is no version such as 5.4.3", s)
		}
		f[i] = byte(n)
	}
	return f, nil
}

// AtLeast reports whether f is other or newer.
func (f Firmware) AtLeast(other Firmware) bool {
	for i := range f {
		if f[i] != other[i] {
			return f[i] > other[i]
		}
	}
	return true
}

func (f Firmware) bytes() []byte { return f[:] }

// formFactor is what the card says of its shape: USB-C keychain.
const formFactor = 0x03

// Options say what card to make. The zero value is a YubiKey as it leaves the
// factory.
type Options struct {
	Serial       uint32        // 10,000,001 when 0
	Firmware     Firmware      // 5.4.3 when 0, with which Debian's yubico-piv-tool can speak
	Maker        *Authority    // signs the attestation certificate; a new one when nil
	NotPIV       bool          // SELECT of the PIV application fails, 6A82
	OnlyPIV      bool          // SELECT of any other application fails, 6A82
	Lacks        []uint32      // data objects that the card does not store: PUT DATA fails, 6A82
	PIN, PUK     string        // 123456 and 12345678 when empty
	Manage       []byte        // the management key; the factory's when nil, AES when of 16 or 32 bytes
	TouchTimeout time.Duration // how long the card waits for a touch; 15 s when 0
}

// A Card is a YubiKey's PIV application. It keeps its state while it is in no
// reader. Its methods may be called at any time, from any goroutine.
type Card struct {
	Options // as completed by NewCard; not to be changed

	applets []*applet

	mu      sync.Mutex // guards what follows; not held while the card waits
	pin     secret
	puk     secret
	manage  managementKey
	keys    map[byte]*key
	objects map[uint32][]byte
	power
	touch
	journal
	orders
}

// power is what a card forgets without power.
type power struct {
	selected  *applet
	verified  bool    // the PIN, since the last SELECT of another application
	fresh     bool    // the PIN, and no key has been used since
	managing  bool    // the management key has been shown
	challenge []byte  // sent for the management key to be shown
	witness   bool    // challenge is to come back as the host's witness
	chain     command // a command of which more is to come
	pending   []byte  // the rest of an answer, for GET RESPONSE
}

// NewCard makes a card. It panics when o.Manage has a size that no card takes.
func NewCard(o Options) *Card {
	o.Serial = cmp.Or(o.Serial, 10_000_001)
	o.Firmware = cmp.Or(o.Firmware, Firmware{5, 4, 3})
	o.TouchTimeout = cmp.Or(o.TouchTimeout, 15*time.Second)
	if o.Maker == nil {
		o.Maker = NewAuthority("Test PIV Root CA")
	}
	c := &Card{Options: o, applets: applets(), touch: newTouch()}
	c.factory(o)
	c.keys[SlotAttestation], c.objects[ObjectAttestation] = o.Maker.equip(c)
	return c
}

// factory puts the PIV application into the state in which it is delivered,
// but for the PIN and PUK that o names.
func (c *Card) factory(o Options) {
	c.pin = newSecret(o.PIN, "123456")
	c.puk = newSecret(o.PUK, "12345678")
	c.manage = newManagementKey(c.Firmware, o.Manage)
	c.keys = map[byte]*key{}
	c.objects = map[uint32][]byte{}
	c.forget()
}

// forget drops what was verified; the application stays selected.
func (c *Card) forget() {
	c.verified, c.fresh, c.managing, c.challenge, c.touched = false, false, false, nil, time.Time{}
}

// handle executes one APDU. A status of touchWanted means that it is to be
// handled again once the card has been touched.
func (c *Card) handle(raw []byte) ([]byte, status) {
	cmd, err := parse(raw)
	switch {
	case err != nil:
		return wrongLength.bytes(), wrongLength
	case cmd.ins == GetResponse:
		return c.getResponse(), ok
	case cmd.cla&^chainBit != 0:
		return noClass.bytes(), noClass
	}
	if s, complete := c.chained(&cmd); !complete {
		return s.bytes(), s
	}
	data, s := c.execute(cmd)
	if s == touchWanted {
		c.waiting = cmd
		return nil, s
	}
	return c.deliver(data, s, cmd.extended), s
}

func (c *Card) execute(cmd command) ([]byte, status) {
	if cmd.ins == Select {
		return c.selectApplet(cmd)
	}
	if c.selected == nil || !c.Firmware.AtLeast(since[cmd.ins]) {
		return nil, noInstruction
	}
	handler := c.selected.handlers[cmd.ins]
	if handler == nil {
		return nil, noInstruction
	}
	return handler(c, cmd)
}

// since has the firmware that brought an instruction.
var since = map[Instruction]Firmware{
	Attest:      {4, 3, 0},
	GetSerial:   {5, 0, 0},
	GetMetadata: {5, 3, 0},
	MoveKey:     {5, 7, 0},
}

func pivHandlers() map[Instruction]func(*Card, command) ([]byte, status) {
	return map[Instruction]func(*Card, command) ([]byte, status){
		Verify:           (*Card).verify,
		ChangeReference:  (*Card).changeReference,
		ResetRetry:       (*Card).resetRetry,
		Generate:         (*Card).generate,
		Authenticate:     (*Card).authenticate,
		GetData:          (*Card).getData,
		PutData:          (*Card).putData,
		MoveKey:          (*Card).moveKey,
		GetMetadata:      (*Card).metadata,
		GetSerial:        func(c *Card, _ command) ([]byte, status) { return c.serial(), ok },
		Attest:           (*Card).attest,
		SetRetries:       (*Card).setRetries,
		Reset:            (*Card).reset,
		GetVersion:       func(c *Card, _ command) ([]byte, status) { return c.Firmware.bytes(), ok },
		ImportKey:        (*Card).importKey,
		SetManagementKey: (*Card).setManagementKey,
	}
}
