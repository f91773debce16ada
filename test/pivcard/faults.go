package pivcard

import (
	"slices"
	"time"
)

// A Fault is something that goes wrong with one command. [Card.Order] orders
// it; by default it strikes once, at the next command.
type Fault struct {
	ins     Instruction
	anyIns  bool
	pass    int // matching commands that go well first
	lasting bool
	strike  func(*occasion) (answer []byte, stays bool)
}

// An occasion is a command that a fault strikes.
type occasion struct {
	card *Card
	raw  []byte
	gone <-chan struct{} // closed when the card leaves the reader
}

func (o *occasion) run() []byte { return o.card.run(o.raw, o.gone) }

// orders are the faults that are still to come.
type orders struct {
	faults  []*Fault
	strikes int
	hung    chan struct{} // closed by Release
	spoil   bool          // signatures are to be wrong
	endless bool          // GET RESPONSE always says that there is more
	forge   func(*Statement)
}

// At makes the fault strike only at commands with this instruction: of a chain,
// at the last link.
func (f Fault) At(ins Instruction) Fault { f.ins, f.anyIns = ins, false; return f }

// Nth makes the fault strike at the n-th APDU that it could strike: 1 is the
// next.
func (f Fault) Nth(n int) Fault { f.pass = n - 1; return f }

// Lasting makes the fault strike again and again until [Card.Mend].
func (f Fault) Lasting() Fault { f.lasting = true; return f }

func fault(strike func(*occasion) ([]byte, bool)) Fault {
	return Fault{anyIns: true, strike: strike}
}

// Removed pulls the card out before it does what it is told. vpcd then gives the
// client an empty answer; errors come with the next command, and pcscd notices
// within 0.4 s.
func Removed() Fault {
	return fault(func(*occasion) ([]byte, bool) { return nil, false })
}

// RemovedAfter pulls the card out when it has done it, before it answers.
func RemovedAfter() Fault {
	return fault(func(o *occasion) ([]byte, bool) { o.run(); return nil, false })
}

// Hang lets the card be silent until [Card.Release]; then it answers.
func Hang() Fault {
	return fault(func(o *occasion) ([]byte, bool) {
		select {
		case <-o.card.release():
			return o.run(), true
		case <-o.gone:
			return nil, false
		}
	})
}

// Slow lets the card take its time before it does anything.
func Slow(d time.Duration) Fault {
	return fault(func(o *occasion) ([]byte, bool) {
		select {
		case <-time.After(d):
			return o.run(), true
		case <-o.gone:
			return nil, false
		}
	})
}

// Answer gives these bytes for an answer and does nothing else: one, garbage,
// up to 65,535, which is as much as vpcd carries. None at all also takes the
// card out: so does vpcd, to which it means that no card is there.
func Answer(b []byte) Fault {
	b = append([]byte{}, b[:min(len(b), 65_535)]...) // not nil, which is no answer
	return fault(func(*occasion) ([]byte, bool) { return b, true })
}

// Status refuses with a status, such as 0x6f00.
func Status(sw uint16) Fault { return Answer(status(sw).bytes()) }

// NoAttestation lets the card be one that cannot attest, from now on: 6D00.
func NoAttestation() Fault { return Status(uint16(noInstruction)).At(Attest).Lasting() }

// Endless answers 61 00, "256 bytes more", and the same to each GET RESPONSE
// that follows, until another command comes.
func Endless() Fault {
	return fault(func(o *occasion) ([]byte, bool) {
		o.card.mu.Lock()
		defer o.card.mu.Unlock()
		o.card.endless = true
		return []byte{0x61, 0x00}, true
	})
}

// StatusAfter answers with a status word after the card has done what it was told.
func StatusAfter(word uint16) Fault {
	return fault(func(o *occasion) ([]byte, bool) { o.run(); return status(word).bytes(), true })
}

// Erased removes the key in a slot and answers 6581, a failure of the memory.
func Erased(slot byte) Fault {
	return fault(func(o *occasion) ([]byte, bool) {
		o.card.mu.Lock()
		defer o.card.mu.Unlock()
		delete(o.card.keys, slot)
		return status(0x6581).bytes(), true
	})
}

// WrongSignature lets the card sign something else than it was given, at the
// next GENERAL AUTHENTICATE.
func WrongSignature() Fault {
	f := fault(func(o *occasion) ([]byte, bool) {
		o.card.setSpoil(true)
		defer o.card.setSpoil(false)
		return o.run(), true
	})
	return f.At(Authenticate)
}

func (c *Card) setSpoil(spoil bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spoil = spoil
}

// Order makes a fault come. Of several that could strike, the one that was
// ordered first does.
func (c *Card) Order(f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, &f)
}

// Strikes returns how many faults have struck since the card was made: a fault that
// was ordered has struck when the number has grown.
func (c *Card) Strikes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.strikes
}

// Mend takes all faults back and releases a card that hangs. The state of the
// card stays: tries, keys, forged statements.
func (c *Card) Mend() {
	c.mu.Lock()
	c.faults, c.endless = nil, false
	c.mu.Unlock()
	c.Release()
}

// Release lets a card that hangs go on.
func (c *Card) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hung != nil {
		close(c.hung)
		c.hung = nil
	}
}

func (c *Card) release() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hung == nil {
		c.hung = make(chan struct{})
	}
	return c.hung
}

// Forge lets change falsify what the card attests from now on; nil makes it
// honest. change runs while the card is busy and must not call its methods.
func (c *Card) Forge(change func(*Statement)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forge = change
}

// struck returns the fault that strikes this command, or nil.
func (o *orders) struck(raw []byte) *Fault {
	for i, f := range o.faults {
		if !f.anyIns && (f.ins != instructionOf(raw) || raw[0]&chainBit != 0) {
			continue
		}
		if f.pass > 0 {
			f.pass--
			continue
		}
		o.strikes++
		if !f.lasting {
			o.faults = slices.Delete(o.faults, i, i+1)
		}
		return f
	}
	return nil
}
