package pivcard

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"
)

var version = []byte{0, byte(GetVersion), 0, 0}

// TestFaultsThroughPCSCD orders each fault that a reader and pcscd have a say
// in, on one rig. Each leaves a card that works.
func TestFaultsThroughPCSCD(t *testing.T) {
	t.Parallel()
	c := NewCard(Options{})
	r := Start(t, 1, c)
	large := bytes.Repeat([]byte{0x55}, 65_535)
	for _, part := range []struct {
		name string
		f    func(*testing.T, *session)
	}{
		{"one byte", func(t *testing.T, s *session) { answers(t, s, c, []byte{0x90}) }},
		{"two bytes", func(t *testing.T, s *session) { answers(t, s, c, []byte{0x12, 0x34}) }},
		{"64 KiB", func(t *testing.T, s *session) { answers(t, s, c, large) }},
		{"nothing", func(t *testing.T, s *session) {
			c.Order(Answer(nil))
			answer, err := s.exchange(version)
			lost(t, s, reply{answer, err})
			r.Insert(c)
		}},
		{"removed", func(t *testing.T, s *session) { removed(t, r, s, c, Removed(), false) }},
		{"removed after", func(t *testing.T, s *session) { removed(t, r, s, c, RemovedAfter(), true) }},
		{"hangs", func(t *testing.T, s *session) { hangs(t, s, c) }},
		{"hangs and is removed", func(t *testing.T, s *session) {
			c.Order(Hang())
			got := later(s, version)
			arrived(t, c, GetVersion)
			r.Remove(c)
			lost(t, s, <-got)
			r.Insert(c)
		}},
		{"hangs, and the client dies", func(t *testing.T, s *session) { abandoned(t, r, c) }},
	} {
		t.Run(part.name, func(t *testing.T) {
			c.Forget()
			part.f(t, through(t, r, c))
			c.Mend()
			through(t, r, c).want(ok, GetVersion, 0, 0)
		})
	}
}

// answers orders an answer and sees it come.
func answers(t *testing.T, s *session, c *Card, want []byte) {
	t.Helper()
	c.Order(Answer(want))
	if got, err := s.exchange(version); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes %x, %v, want %d", len(got), got[:min(len(got), 8)], err, len(want))
	}
}

// removed has the card removed in the middle of changing its PIN, and back.
func removed(t *testing.T, r *Rig, s *session, c *Card, f Fault, done bool) {
	t.Helper()
	c.Order(f.At(Verify))
	s.want(ok, GetVersion, 0, 0)
	wrong := padded("999999")
	answer, err := s.exchange(append([]byte{0, byte(Verify), 0, refPIN, 8}, wrong[:]...))
	lost(t, s, reply{answer, err})
	if want := map[bool]int{true: 2, false: 3}[done]; c.PINLeft() != want || c.PINTries() != 1 {
		t.Errorf("%d tries left, %d seen; want %d and 1", c.PINLeft(), c.PINTries(), want)
	}
	r.Insert(c)
	through(t, r, c).verify(ok, "123456")
}

// A reply is what came of an exchange.
type reply struct {
	answer []byte
	err    error
}

// lost checks what a client sees of a removal: vpcd makes an empty answer of it,
// and from then on there are errors.
func lost(t *testing.T, s *session, got reply) {
	t.Helper()
	if got.err == nil && len(got.answer) > 0 {
		t.Errorf("answered %x", got.answer)
	}
	if answer, err := s.exchange(version); err == nil && len(answer) > 0 {
		t.Errorf("a card that is out answers %x", answer)
	}
	eventually(t, func() error {
		if answer, err := s.exchange(version); err == nil {
			return fmt.Errorf("no error, %x", answer)
		}
		return nil
	})
}

// later sends a command and does not wait.
func later(s *session, apdu []byte) <-chan reply {
	got := make(chan reply, 1)
	go func() {
		answer, err := s.exchange(apdu)
		got <- reply{answer, err}
	}()
	return got
}

// arrived waits until the card has received an instruction.
func arrived(t *testing.T, c *Card, ins Instruction) {
	t.Helper()
	eventually(t, func() error {
		if c.Count(ins) == 0 {
			return errors.New("the command does not arrive")
		}
		return nil
	})
}

func hangs(t *testing.T, s *session, c *Card) {
	c.Order(Hang())
	got := later(s, version)
	arrived(t, c, GetVersion)
	select {
	case result := <-got:
		t.Errorf("answered %x, %v", result.answer, result.err)
	case <-time.After(50 * time.Millisecond):
	}
	c.Release()
	if result := <-got; result.err != nil || !bytes.Equal(result.answer, []byte{5, 4, 3, 0x90, 0}) {
		t.Errorf("released, it answered %x, %v", result.answer, result.err)
	}
}

// abandoned has a client die while the card hangs. pcscd keeps waiting, and is
// itself again when the card is.
func abandoned(t *testing.T, r *Rig, c *Card) {
	client, err := r.open(r.ReaderOf(c), shareShared)
	if err != nil {
		t.Fatal(err)
	}
	c.Order(Hang())
	got := later(&session{t, client.transmit}, version)
	arrived(t, c, GetVersion)
	client.conn.Close()
	if result := <-got; result.err == nil {
		t.Errorf("answered %x", result.answer)
	}
	c.Release()
	eventually(t, func() error { return try(r, c, shareShared) })
}

// TestEndless asks on and on. Another command ends it.
func TestEndless(t *testing.T) {
	c := NewCard(Options{})
	s := direct(t, c)
	c.Order(Endless().At(GetVersion))
	if _, sw := s.raw(version); sw != 0x6100 {
		t.Errorf("status %04x, want 6100", sw)
	}
	for range 1000 {
		if answer, sw := s.raw([]byte{0, byte(GetResponse), 0, 0, 0}); len(answer) > 0 || sw != 0x6100 {
			t.Fatalf("more: %x, status %04x", answer, sw)
		}
	}
	s.want(ok, GetVersion, 0, 0)
	s.want(notAllowed, GetResponse, 0, 0)
}

// TestWhen has faults that strike at the right command, once or for good.
func TestWhen(t *testing.T) {
	const sw = 0x6f00
	for _, c := range []struct {
		name  string
		fault Fault
		want  [6]status // GET VERSION, GET SERIAL, and so on
	}{
		{"next", Status(sw), [6]status{sw, ok, ok, ok, ok, ok}},
		{"third", Status(sw).Nth(3), [6]status{ok, ok, sw, ok, ok, ok}},
		{"instruction", Status(sw).At(GetSerial), [6]status{ok, sw, ok, ok, ok, ok}},
		{"second of instruction", Status(sw).At(GetSerial).Nth(2), [6]status{ok, ok, ok, sw, ok, ok}},
		{"lasting", Status(sw).Lasting(), [6]status{sw, sw, sw, sw, sw, sw}},
		{"lasting from the second of instruction", Status(sw).At(GetSerial).Nth(2).Lasting(), [6]status{ok, ok, ok, sw, ok, sw}},
	} {
		card := NewCard(Options{})
		s := direct(t, card)
		card.Order(c.fault)
		for i, want := range c.want {
			if _, got := s.send([]Instruction{GetVersion, GetSerial}[i%2], 0, 0); got != want {
				t.Errorf("%s: command %d: status %04x, want %04x", c.name, i, got, want)
			}
		}
		card.Mend()
		s.want(ok, GetSerial, 0, 0)
	}
}

func TestWrongSignature(t *testing.T) {
	for _, alg := range []byte{P256, RSA2048} {
		c := NewCard(Options{})
		public := c.SetKey(0x9e, Key{Algorithm: alg})
		s := direct(t, c)
		c.Order(WrongSignature())
		for i, want := range []bool{false, true} {
			if got := signedBy(public, s.sign(ok, 0x9e, alg, block(alg))); got != want {
				t.Errorf("algorithm %x, signature %d: good %v, want %v", alg, i, got, want)
			}
		}
	}
}

func TestNoAttestation(t *testing.T) {
	c := NewCard(Options{})
	c.SetKey(0x9a, Key{Algorithm: P256})
	s := direct(t, c)
	c.Order(NoAttestation())
	s.want(noInstruction, Attest, 0x9a, 0)
	s.want(noInstruction, Attest, 0x9a, 0)
	c.Mend()
	attested(t, s, 0x9a)
}

func TestSlow(t *testing.T) {
	const d = 20 * time.Millisecond
	c := NewCard(Options{})
	s := direct(t, c)
	c.Order(Slow(d).Lasting())
	for range 2 {
		begun := time.Now()
		s.want(ok, GetVersion, 0, 0)
		if took := time.Since(begun); took < d {
			t.Errorf("answered within %v, want %v", took, d)
		}
	}
	gone := make(chan struct{})
	close(gone)
	c.Mend()
	c.Order(Slow(time.Hour))
	if answer, stays := c.transmit(version, gone); stays {
		t.Errorf("a card that has gone answers %x", answer)
	}
}
