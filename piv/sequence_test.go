package piv_test

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv"
	"holdfast/piv/wire"
	"holdfast/test/pace"
)

// A sequence is a user, and what may happen to the card meanwhile, as a model:
// how many tries are left, and which keys are unlocked.
type sequence struct {
	t    *testing.T
	r    *rand.Rand
	s    *script
	b    *piv.PIV
	keys []keys.Material

	tries    int
	wrong    int // wrong entries that the person made
	unlocked []bool
	doubt    bool // something went wrong: whether the keys are unlocked is not certain
	log      []string
}

// TestPINSequences: whatever happens, the card is shown no wrong PIN that the
// person has not just entered, never the last one, and keys sign exactly when they
// are unlocked.
func TestPINSequences(t *testing.T) {
	t.Parallel()
	total := pace.Share(400, 10_000)
	s := newScript(t)
	b := s.open(t)
	q := &sequence{t: t, s: s, b: b}
	q.keys = []keys.Material{
		s.create(b, keys.OnCard{Slot: "9a", PINPolicy: keys.PolicyOnce}),
		s.create(b, keys.OnCard{Slot: "82", PINPolicy: keys.PolicyAlways}),
	}
	seed := rand.Uint64()
	q.r = rand.New(rand.NewPCG(seed, 0))
	for n := range total {
		q.reset()
		for range 2 + q.r.IntN(6) {
			q.step()
		}
		q.settle()
		c := s.card()
		if c.Wrong > q.wrong || c.Tries < 1 || !q.doubt && c.Tries != q.tries {
			t.Fatalf("seed %d, sequence %d: %d wrong PINs of %d entered, %d tries left of %d: %q", seed, n, c.Wrong, q.wrong, c.Tries, q.tries, q.log)
		}
		if t.Failed() {
			t.Fatalf("seed %d, sequence %d: %q", seed, n, q.log)
		}
	}
	t.Logf("%d sequences: 0 tries beyond wrong entries", total)
}

func (q *sequence) reset() {
	_ = os.Remove(q.s.path + ".order") // perhaps nobody came to it
	q.b.Lock(nil)
	q.s.change(func(c *scriptCard) { c.Tries, c.Wrong = 3, 0 })
	q.tries, q.wrong, q.unlocked, q.doubt, q.log = 3, 0, make([]bool, len(q.keys)), false, nil
}

// settle returns when the card has finished the requests whose callers have left.
func (q *sequence) settle() {
	if err := q.b.Check(soon(q.t), q.keys[0]); err != nil {
		q.t.Fatal(err)
	}
}

func (q *sequence) step() {
	i := q.r.IntN(len(q.keys))
	switch n := q.r.IntN(200); {
	case n < 60:
		q.note("unlock", q.unlock(i, rightPIN))
	case n < 100:
		q.note("wrong", q.unlock(i, wrongPIN))
	case n < 105:
		q.note("malformed", q.unlock(i, "123"))
	case n < 160:
		q.note("sign", q.sign(i))
	case n < 175:
		q.b.Lock(&q.keys[i])
		q.unlocked[i] = false
		q.note("lock", "")
	case n < 180:
		q.b.Lock(nil)
		clear(q.unlocked)
		q.note("lock all", "")
	case n < 190:
		q.note("unblock", q.unblock())
	case n < 198:
		q.note("cancelled", q.cancelled(i))
	default:
		q.note("crash", q.crash(i))
	}
}

func (q *sequence) note(what string, kind fault.Kind) { q.log = append(q.log, what+" "+string(kind)) }

// unlock enters a PIN and compares the outcome with the model's.
func (q *sequence) unlock(i int, pin string) fault.Kind {
	got := fault.KindOf(q.b.Unlock(soon(q.t), q.keys[i], []byte(pin), time.Now().Add(time.Hour)))
	want := fault.Kind("")
	switch {
	case pin != rightPIN && pin != wrongPIN:
		want = fault.BadRequest
	case q.tries <= 1:
		want = fault.PINBlocked
	case pin == wrongPIN:
		want = fault.PINRequired
		q.tries, q.wrong = q.tries-1, q.wrong+1
		clear(q.unlocked)
	default:
		q.tries, q.unlocked[i] = 3, true
	}
	if got != want && !q.doubt {
		q.t.Errorf("unlock: got %q, want %q", got, want)
	}
	return got
}

func (q *sequence) sign(i int) fault.Kind {
	got := fault.KindOf(sign(soon(q.t), q.b, q.keys[i]))
	want := fault.Kind("")
	if !q.unlocked[i] {
		want = fault.PINRequired
	}
	if got != want && !q.doubt {
		q.t.Errorf("sign: got %q, want %q", got, want)
	}
	return got
}

func (q *sequence) unblock() fault.Kind {
	err := q.b.Unblock(soon(q.t), scriptSerial, []byte(rightPUK), []byte(rightPIN))
	q.tries = 3
	clear(q.unlocked)
	return fault.KindOf(err)
}

// cancelled enters a wrong PIN and leaves, perhaps before it was sent.
func (q *sequence) cancelled(i int) fault.Kind {
	ctx, cancel := context.WithTimeout(q.t.Context(), time.Duration(q.r.IntN(300))*time.Microsecond)
	defer cancel()
	q.wrong, q.doubt = q.wrong+1, true
	return fault.KindOf(q.b.Unlock(ctx, q.keys[i], []byte(wrongPIN), time.Now().Add(time.Hour)))
}

// crash ends the child in the middle of a signature or of unlocking.
func (q *sequence) crash(i int) fault.Kind {
	q.doubt = true
	if q.r.IntN(2) == 0 {
		q.s.order(wire.Sign, "crash")
		return fault.KindOf(sign(soon(q.t), q.b, q.keys[i]))
	}
	q.s.order(wire.Unlock, "crash")
	q.wrong++
	return fault.KindOf(q.b.Unlock(soon(q.t), q.keys[i], []byte(wrongPIN), time.Now().Add(time.Hour)))
}
