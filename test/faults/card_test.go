package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/test/daemon"
	"holdfast/test/pace"
	"holdfast/test/pivcard"
	"holdfast/test/swtpm"
)

// The codes of a card that is set up, and how soon a card must be of use again when
// its fault is over, on a machine with nothing else to do.
const (
	cardPIN, cardPUK = "246813", "97531864"
	cardRecovery     = 2 * time.Second
)

// A cardRig is an agent with a TPM and cards, a key in the TPM, tpm, and one on
// each card: card0, card1.
type cardRig struct {
	agent  *daemon.Agent
	client *client.Client
	reader *pivcard.Rig
	cards  []*pivcard.Card
	tpm    agentwire.Key
	keys   []agentwire.Key
}

func newCardRig(t *testing.T, n int, on agentwire.OnCard) *cardRig {
	t.Helper()
	r := &cardRig{reader: pivcard.Start(t, n)}
	r.agent = daemon.Start(t, daemon.Options{
		Device: swtpm.Start(t).Device(), Cards: &daemon.Cards{Socket: r.reader.Socket(), Roots: r.reader.RootFile()},
	})
	r.client = connect(t, r.agent)
	r.tpm = create(t, r.client, agentwire.CreateKeyParameters{Name: "tpm", Backend: "tpm"})
	for i := range n {
		card := r.reader.NewCard(pivcard.Options{Serial: uint32(20_000_001 + i)})
		card.TouchAfter(10 * time.Millisecond)
		r.cards = append(r.cards, card)
		r.insert(t, card)
		setUpCard(t, r.client, card)
		here := on
		here.Card = card.Serial
		r.keys = append(r.keys, create(t, r.client, agentwire.CreateKeyParameters{
			Name: fmt.Sprintf("card%d", i), Backend: "piv", PIN: []byte(cardPIN), OnCard: &here,
		}))
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("-- agent:\n%s", r.agent.Log())
		}
	})
	return r
}

func (r *cardRig) insert(t *testing.T, card *pivcard.Card) {
	t.Helper()
	if err := r.reader.Insert(card); err != nil {
		t.Fatal(err)
	}
}

func (r *cardRig) remove(t *testing.T, card *pivcard.Card) {
	t.Helper()
	if err := r.reader.Remove(card); err != nil {
		t.Fatal(err)
	}
}

// setUpCard gives a card its codes, as soon as the agent has seen it.
func setUpCard(t *testing.T, c *client.Client, card *pivcard.Card) {
	t.Helper()
	p := agentwire.SetUpCardParameters{Card: card.Serial, PIN: []byte(cardPIN), PUK: []byte(cardPUK)}
	poll(t, "the card is set up", failed, func() bool {
		err := c.SetUpCard(within(t, failed), p)
		if err != nil && fault.KindOf(err) != fault.DeviceAbsent && fault.KindOf(err) != fault.KeyMismatch {
			t.Fatalf("set up card %d: %v", card.Serial, err)
		}
		return err == nil
	})
}

// kindWithin is the kind of what comes of a signature that may take so long.
func (r *cardRig) kindWithin(t *testing.T, k agentwire.Key, d time.Duration) fault.Kind {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	err := sign(ctx, r.client, k)
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Deadline
	}
	return fault.KindOf(err)
}

// signsSoon waits until a key signs again and returns how long it took.
func (r *cardRig) signsSoon(t *testing.T, what string, k agentwire.Key) time.Duration {
	t.Helper()
	return poll(t, what, failed, func() bool { return sign(within(t, failed), r.client, k) == nil })
}

// TestCardHangs: while one card hangs, and while it waits for a finger, the TPM
// and the other card sign as if nothing had happened.
func TestCardHangs(t *testing.T) {
	t.Parallel()
	r := newCardRig(t, 2, agentwire.OnCard{PINPolicy: "never", TouchPolicy: "always"})
	slack := slack(t, func() error {
		return errors.Join(sign(within(t, failed), r.client, r.keys[0]), sign(within(t, failed), r.client, r.keys[1]), sign(within(t, failed), r.client, r.tpm))
	})
	for name, stop := range map[string]func() (resume func()){
		"hangs": func() func() { r.cards[0].Order(pivcard.Hang()); return r.cards[0].Release },
		"wants a finger": func() func() {
			r.cards[0].TouchAfter(0)
			return func() { r.cards[0].TouchAfter(10 * time.Millisecond) }
		},
		"answers forever": func() func() { r.cards[0].Order(pivcard.Endless()); return r.cards[0].Mend },
	} {
		resume := stop()
		stuck := make(chan error, 1)
		go func() { stuck <- sign(within(t, 3*time.Second), connect(t, r.agent), r.keys[0]) }()
		var worst time.Duration
		signed := 0
		for began := time.Now(); time.Since(began) < 2*time.Second; {
			for _, k := range []agentwire.Key{r.tpm, r.keys[1]} {
				start := time.Now()
				if err := sign(within(t, failed), r.client, k); err != nil {
					t.Errorf("card 0 %s: %s: %v", name, k.Name, err)
				}
				worst = max(worst, time.Since(start))
				signed++
			}
		}
		if err := <-stuck; err == nil {
			t.Errorf("card 0 %s, and signed", name)
		}
		resume()
		t.Logf("card 0 %s: %d signatures elsewhere, the slowest %v; recovery %v", name, signed, worst, r.signsSoon(t, "recovery", r.keys[0]))
		if worst > time.Second+slack {
			t.Errorf("card 0 %s: a signature elsewhere took %v", name, worst)
		}
	}
}

// slack is what a limit has beside its own time for unlocking and signing.
func (r *cardRig) slack(t *testing.T, k agentwire.Key) time.Duration {
	t.Helper()
	return slack(t, func() error {
		lockCard(t, r.client, k)
		unlockCard(t, r.client, k)
		return sign(within(t, failed), r.client, k)
	})
}

// TestCardFaults injects faults at random, one after the other, and counts those
// that struck: no hang, no card that stays lost, no PIN spent.
func TestCardFaults(t *testing.T) {
	t.Parallel()
	r := newCardRig(t, 1, agentwire.OnCard{PINPolicy: "once"})
	card, k := r.cards[0], r.keys[0]
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	want, struck, felt, wrong := pace.Share(25, 200), 0, 0, 0
	slack := r.slack(t, k)
	var worst time.Duration
	for i := 0; struck < want && !t.Failed(); i++ {
		if i == 20*want {
			t.Fatalf("of %d faults %d struck", i, struck)
		}
		unlockCard(t, r.client, k)
		cold := random.IntN(2) == 0
		if cold { // the card is opened anew, the PIN proved, and then it signs
			lockCard(t, r.client, k)
		}
		before := card.Strikes()
		flaw, resume := r.breaks(t, random, card, cold)
		kind := r.unlockAndSign(t, k, cold)
		strikes := card.Strikes() > before || flaw == takenOut
		if strikes {
			struck++
		}
		switch kind {
		case fault.Internal, fault.BadRequest, fault.Denied, fault.PINBlocked:
			t.Errorf("fault %d, %s: kind %q", i, flaw, kind)
		case "":
		default:
			if strikes {
				felt++
			}
		}
		resume()
		took := poll(t, fmt.Sprintf("recovery from fault %d, %s, seed %d", i, flaw, seed), failed, func() bool {
			err := sign(within(t, failed), r.client, k)
			if fault.KindOf(err) == fault.PINRequired {
				unlockCard(t, r.client, k)
			}
			return err == nil
		})
		worst = max(worst, took)
		if took > cardRecovery+slack {
			t.Errorf("fault %d, %s: recovery took %v; without a fault the calls take %v", i, flaw, took, slack/slackFactor)
		}
		if left := card.PINLeft(); left != 3 {
			wrong++
		}
		lockCard(t, r.client, k) // lets go of the card
		poll(t, "the card is free after "+flaw, failed, func() bool { return r.free(card) })
	}
	t.Logf("seed %d: %d faults, %d of them felt, slowest recovery %v, %d times a PIN try was spent, no handle leaked", seed, struck, felt, worst, wrong)
	if wrong > 0 || felt == 0 {
		t.Errorf("a PIN try was spent %d times; %d of %d faults were felt", wrong, felt, struck)
	}
}

// unlockAndSign signs, and unlocks before when the key is locked; it returns the
// kind of what went wrong first.
func (r *cardRig) unlockAndSign(t *testing.T, k agentwire.Key, locked bool) fault.Kind {
	t.Helper()
	if locked {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		_, err := r.client.Unlock(ctx, agentwire.UnlockKeyParameters{Name: k.Name, PIN: []byte(cardPIN)})
		if errors.Is(err, context.DeadlineExceeded) {
			return fault.Deadline
		}
		if err != nil {
			return fault.KindOf(err)
		}
	}
	return r.kindWithin(t, k, 500*time.Millisecond)
}

func lockCard(t *testing.T, c *client.Client, k agentwire.Key) {
	t.Helper()
	if err := c.Lock(within(t, failed), k.Name); err != nil {
		t.Fatalf("lock: %v", err)
	}
}

// free reports whether another program could open the card for itself.
func (r *cardRig) free(card *pivcard.Card) (free bool) {
	defer func() { free = recover() == nil }()
	r.reader.Hold(panics{}, r.reader.ReaderOf(card), true)()
	return true
}

// panics is a test in which nothing fails quietly.
type panics struct{}

func (panics) Helper()                           {}
func (panics) Cleanup(func())                    {}
func (panics) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// takenOut is the flaw that is no fault of a command: the card leaves its reader.
const takenOut = "taken out"

// breaks breaks one thing and returns its name and a function that repairs it.
func (r *cardRig) breaks(t *testing.T, random *rand.Rand, card *pivcard.Card, cold bool) (name string, resume func()) {
	t.Helper()
	pulled := func() {
		card.Mend() // if it has not struck
		r.remove(t, card)
		r.insert(t, card)
	}
	faults := []struct {
		name  string
		fault pivcard.Fault
		mend  func()
	}{
		{"removed", pivcard.Removed(), pulled},
		{"removed before it answers", pivcard.RemovedAfter(), pulled},
		{"an empty answer", pivcard.Answer(nil), pulled}, // which vpcd takes for a card that has gone
		{"one byte", pivcard.Answer([]byte{0x90}), card.Mend},
		{"64 KiB", pivcard.Answer(slices.Repeat([]byte{0x55}, 65_000)), card.Mend},
		{"6F00", pivcard.Status(0x6f00), card.Mend},
		{"61 00 for ever", pivcard.Endless(), card.Mend},
		{"hangs", pivcard.Hang(), func() { card.Mend(); card.Release() }},
		{takenOut, pivcard.Fault{}, func() { r.insert(t, card) }},
	}
	f := faults[random.IntN(len(faults))]
	if f.name == takenOut {
		r.remove(t, card)
		return f.name, f.mend
	}
	nth := 1 // an open card signs with one command
	if cold {
		nth += random.IntN(6)
	}
	card.Order(f.fault.Nth(nth))
	return fmt.Sprintf("%s at command %d", f.name, nth), f.mend
}

func unlockCard(t *testing.T, c *client.Client, k agentwire.Key) {
	t.Helper()
	poll(t, "unlock", failed, func() bool {
		_, err := c.Unlock(within(t, failed), agentwire.UnlockKeyParameters{Name: k.Name, PIN: []byte(cardPIN)})
		if kind := fault.KindOf(err); kind == fault.PINBlocked {
			t.Fatalf("unlock: %v", err)
		}
		return err == nil
	})
}

// TestOtherCard: a card in the place of the key's own gets no PIN; the right one,
// put back, is used without a restart.
func TestOtherCard(t *testing.T) {
	t.Parallel()
	r := newCardRig(t, 1, agentwire.OnCard{PINPolicy: "once"})
	mine, other := r.cards[0], r.reader.NewCard(pivcard.Options{Serial: 666})
	slack := r.slack(t, r.keys[0])
	unlockCard(t, r.client, r.keys[0])
	r.remove(t, mine)
	poll(t, "device-absent", failed, func() bool { return r.kindWithin(t, r.keys[0], callLimit) == fault.DeviceAbsent })
	r.insert(t, other)
	poll(t, "key-mismatch", failed, func() bool { return r.kindWithin(t, r.keys[0], callLimit) == fault.KeyMismatch })
	_, err := r.client.Unlock(within(t, failed), agentwire.UnlockKeyParameters{Name: r.keys[0].Name, PIN: []byte(cardPIN)})
	if fault.KindOf(err) != fault.KeyMismatch {
		t.Errorf("unlock: %v, want key-mismatch", err)
	}
	if n := other.PINTries(); n != 0 {
		t.Errorf("the other card got %d PINs", n)
	}
	r.remove(t, other)
	r.insert(t, mine)
	poll(t, "the key wants its PIN again", failed, func() bool { return r.kindWithin(t, r.keys[0], callLimit) == fault.PINRequired })
	unlockCard(t, r.client, r.keys[0])
	if took := r.signsSoon(t, "the right card", r.keys[0]); took > cardRecovery+slack {
		t.Errorf("the right card signs after %v", took)
	}
}

// TestPCSCDRestarts: the daemon between agent and card ends and comes back.
func TestPCSCDRestarts(t *testing.T) {
	t.Parallel()
	r := newCardRig(t, 1, agentwire.OnCard{PINPolicy: "never"})
	slack := slack(t, func() error { return sign(within(t, failed), r.client, r.keys[0]) })
	for range 3 {
		if err := sign(within(t, failed), r.client, r.keys[0]); err != nil {
			t.Fatal(err)
		}
		r.reader.StopPCSCD()
		poll(t, "device-absent", failed, func() bool { return r.kindWithin(t, r.keys[0], callLimit) == fault.DeviceAbsent })
		if err := sign(within(t, failed), r.client, r.tpm); err != nil {
			t.Errorf("the TPM meanwhile: %v", err)
		}
		if err := r.reader.Restart(); err != nil {
			t.Fatal(err)
		}
		if took := r.signsSoon(t, "after pcscd's restart", r.keys[0]); took > cardRecovery+slack {
			t.Errorf("recovery took %v", took)
		}
	}
}
