package piv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"holdfast/internal/keys"
	"holdfast/piv"
	"holdfast/test/pace"
	"holdfast/test/pivcard"
)

// A stage is a rig with two cards, and a key on each: the first suffers, and the
// second must not notice.
type stage struct {
	t          *testing.T
	rig        *pivcard.Rig
	b          *piv.PIV
	card       *pivcard.Card
	key, other keys.Material

	faults, hangs, leaks int
	felt                 int           // faults that made a call fail; the others were borne
	slowest              time.Duration // recovery
	usual                time.Duration // what unlocking and signing takes here without a fault
	limit                time.Duration // how long the card may take for one call
}

// recovery is how soon a card must be of use again when its fault is over, on a
// machine with nothing else to do.
const recovery = 2 * time.Second

// slack is what a limit has beside its own time: many times what the same calls
// took on this machine in this run without a fault.
func (s *stage) slack() time.Duration { return 20 * s.usual }

// TestCardFaults: faults of a card, one after the other, each of which strikes a
// command. No call outlives its timeout, no reader stays taken, the card is of use
// again within 2 s, no try of its PIN is lost, and the card beside it signs on.
func TestCardFaults(t *testing.T) {
	const stages = 4
	each := pace.Share(8, 50)
	all := make([]*stage, stages)
	t.Run("all", func(t *testing.T) {
		for i := range all {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				all[i] = newStage(t)
				all[i].play(each)
			})
		}
	})
	var sum stage
	for _, s := range all {
		sum.faults, sum.hangs, sum.leaks = sum.faults+s.faults, sum.hangs+s.hangs, sum.leaks+s.leaks
		sum.slowest, sum.felt = max(sum.slowest, s.slowest), sum.felt+s.felt
	}
	t.Logf("%d card faults, %d of them felt: %d hangs, %d leaked handles, slowest recovery %v", sum.faults, sum.felt, sum.hangs, sum.leaks, sum.slowest)
	if sum.faults != stages*each || sum.felt == 0 || sum.hangs > 0 || sum.leaks > 0 {
		t.Errorf("want %d faults, some of them felt, 0 hangs, 0 leaks", stages*each)
	}
}

func newStage(t *testing.T) *stage {
	rig := quietRig(t)
	s := &stage{t: t, rig: rig, card: rig.NewCard(pivcard.Options{Serial: 1})}
	for _, card := range []*pivcard.Card{s.card, rig.NewCard(pivcard.Options{Serial: 2})} {
		if err := rig.Insert(card); err != nil {
			t.Fatal(err)
		}
	}
	c := config(t, rig)
	c.Log = nil
	s.b = openPIV(t, c)
	setUp(t, s.b, 1)
	setUp(t, s.b, 2)
	s.key = create(t, s.b, keys.OnCard{Serial: 1, PINPolicy: keys.PolicyAlways})
	s.other = create(t, s.b, keys.OnCard{Serial: 2, PINPolicy: keys.PolicyNever})
	s.usual = pace.Slowest(t, 5, func() error {
		s.b.Lock(nil)
		return errors.Join(s.unlock(soon(t)), s.sign(soon(t)))
	})
	s.b.Close()
	s.limit = 500*time.Millisecond + 5*s.usual
	c.Limits(s.limit, s.limit, 50*time.Millisecond)
	s.b = openPIV(t, c)
	return s
}

// quietRig is a rig that reports what fails, instead of ending the test: whether a
// fault has removed its card is best found out by inserting it.
func quietRig(t *testing.T) *pivcard.Rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "piv-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	rig, err := pivcard.New(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rig.Close)
	return rig
}

// play orders faults until so many have struck, while the other card signs.
func (s *stage) play(faults int) {
	seed := rand.Uint64()
	s.t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	over, stop := context.WithCancel(s.t.Context())
	var beside sync.WaitGroup
	beside.Go(func() { s.signBeside(over) })
	for ordered := 0; s.faults < faults && !s.t.Failed(); ordered++ {
		if ordered == 20*faults {
			s.t.Fatalf("of %d faults %d struck", ordered, s.faults)
		}
		s.suffer(r)
	}
	stop()
	beside.Wait()
	if left := s.card.PINLeft(); left != 3 {
		s.t.Errorf("%d tries of the PIN are left, and nobody entered a wrong one", left)
	}
}

// signBeside signs with the other card until over.
func (s *stage) signBeside(over context.Context) {
	for n := 0; ; n++ {
		begun := time.Now()
		err := sign(soon(s.t), s.b, s.other)
		if over.Err() != nil {
			s.t.Logf("the other card: %d signatures", n)
			return
		}
		if took := time.Since(begun); err != nil || took > 4*s.limit {
			s.t.Errorf("the other card: %v after %v", err, took)
		}
		select {
		case <-over.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// suffer has one fault strike somewhere in unlocking and signing. A fault that the
// card did not come to is not counted.
func (s *stage) suffer(r *rand.Rand) {
	name, fault := randomFault(r)
	s.b.Lock(nil) // lets go of the card: it is opened again, which is half of the fun
	before := s.card.Strikes()
	s.card.Order(fault)
	failed := false
	for _, call := range []func(context.Context) error{s.unlock, s.sign} {
		ctx, cancel := context.WithTimeout(s.t.Context(), 2*s.limit)
		begun := time.Now()
		failed = call(ctx) != nil || failed
		cancel()
		if took := time.Since(begun); took > 3*s.limit {
			s.hangs++
			s.t.Errorf("%s: a call took %v", name, took)
		}
	}
	if s.card.Strikes() > before {
		s.faults++
		if failed {
			s.felt++
		}
	}
	s.card.Mend()
	_ = s.rig.Insert(s.card) // unless it is there still
	s.recover(name)
	s.wantFree(name)
}

func (s *stage) unlock(ctx context.Context) error {
	return s.b.Unlock(ctx, s.key, []byte(rightPIN), time.Now().Add(time.Hour))
}

func (s *stage) sign(ctx context.Context) error { return sign(ctx, s.b, s.key) }

// recover signs as soon as the card lets us.
func (s *stage) recover(name string) {
	begun := time.Now()
	for {
		ctx, cancel := context.WithTimeout(s.t.Context(), 6*s.limit)
		err := s.unlock(ctx)
		if err == nil {
			err = s.sign(ctx)
		}
		cancel()
		took := time.Since(begun)
		s.slowest = max(s.slowest, took)
		if err == nil && took > recovery+s.slack() {
			s.t.Errorf("%s: recovery took %v; without a fault the calls take %v", name, took, s.usual)
		}
		if err == nil {
			return
		}
		if took > time.Minute {
			s.t.Fatalf("%s: not recovered: %v", name, err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// wantFree: when the card is let go, another program can have it for itself.
func (s *stage) wantFree(name string) {
	s.b.Lock(nil)
	for end := time.Now().Add(30 * time.Second); ; <-time.After(5 * time.Millisecond) {
		if release, err := hold(s.rig, s.rig.ReaderOf(s.card)); err == nil {
			release()
			return
		}
		if time.Now().After(end) {
			s.leaks++
			s.t.Errorf("%s: the reader stays taken", name)
			return
		}
	}
}

// hold opens the reader as another program does, or says why that cannot be.
func hold(rig *pivcard.Rig, reader string) (release func(), err error) {
	var tb trial
	release = rig.Hold(&tb, reader, true)
	return release, tb.err
}

// A trial is a test that may fail.
type trial struct{ err error }

func (*trial) Helper()                          {}
func (*trial) Cleanup(func())                   {}
func (t *trial) Fatalf(format string, a ...any) { t.err = fmt.Errorf(format, a...) }

// randomFault is any fault at any command.
func randomFault(r *rand.Rand) (string, pivcard.Fault) {
	garbage := make([]byte, 1+r.IntN(300))
	for i := range garbage {
		garbage[i] = byte(r.Uint32())
	}
	faults := []struct {
		name string
		make func() pivcard.Fault
	}{
		{"removed", pivcard.Removed}, {"removed after", pivcard.RemovedAfter}, {"hang", pivcard.Hang},
		{"slow", func() pivcard.Fault { return pivcard.Slow(700 * time.Millisecond) }},
		{"no answer", func() pivcard.Fault { return pivcard.Answer(nil) }},
		{"one byte", func() pivcard.Fault { return pivcard.Answer([]byte{0x90}) }},
		{"garbage", func() pivcard.Fault { return pivcard.Answer(garbage) }},
		{"garbage and success", func() pivcard.Fault { return pivcard.Answer(append(garbage, 0x90, 0)) }},
		{"64 KiB", func() pivcard.Fault { return pivcard.Answer(bytes.Repeat([]byte{0x90, 0}, 32767)) }},
		{"6f00", func() pivcard.Fault { return pivcard.Status(0x6f00) }},
		{"6982", func() pivcard.Fault { return pivcard.Status(0x6982) }},
		{"endless", pivcard.Endless}, {"wrong signature", pivcard.WrongSignature},
	}
	at := []pivcard.Instruction{
		pivcard.Select, pivcard.Verify, pivcard.Authenticate, pivcard.GetMetadata, pivcard.GetSerial, pivcard.GetVersion, pivcard.GetData,
	}
	f, ins := faults[r.IntN(len(faults))], at[r.IntN(len(at))]
	if f.name == "wrong signature" {
		ins = pivcard.Authenticate
	}
	return fmt.Sprintf("%s at %02x", f.name, byte(ins)), f.make().At(ins).Nth(1 + r.IntN(2))
}
