package piv_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv"
	"holdfast/test/pace"
	"holdfast/test/pivcard"
)

func unlockErr(t *testing.T, b *piv.PIV, m keys.Material, pin string) error {
	t.Helper()
	return b.Unlock(soon(t), m, []byte(pin), time.Now().Add(time.Hour))
}

// TestPINStates: what is said, and sent, with few tries left.
func TestPINStates(t *testing.T) {
	_, b, cards := start(t, 1)
	card := cards[0]
	m := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	for _, test := range []struct {
		left  int
		pin   string
		want  fault.Kind
		says  string
		sent  int
		after int
	}{
		{3, wrongPIN, fault.PINRequired, "2 tries", 1, 2},
		{2, wrongPIN, fault.PINRequired, "one try", 1, 1},
		{1, wrongPIN, fault.PINBlocked, "unblock", 0, 1},
		{1, rightPIN, fault.PINBlocked, "unblock", 0, 1},
		{0, rightPIN, fault.PINBlocked, "unblock", 0, 0},
		{2, rightPIN, "", "", 1, 3},
		{3, "12345", fault.BadRequest, "6 to 8", 0, 3},
	} {
		b.Lock(nil)
		card.SetPINLeft(test.left)
		card.Forget()
		err := unlockErr(t, b, m, test.pin)
		wantError(t, test.pin, err, test.want, test.says)
		if card.PINTries() != test.sent || card.PINLeft() != test.after {
			t.Errorf("%d left, %s: sent %d, %d left, want %d, %d", test.left, test.pin, card.PINTries(), card.PINLeft(), test.sent, test.after)
		}
		s := b.Status(soon(t))
		if (test.after <= 1) != (s.State == keys.StateLocked) && test.after < 3 {
			t.Errorf("%d left: state %s", test.after, s.State)
		}
		list, err := b.Cards(soon(t))
		s = b.Status(soon(t)) // now it has looked
		if err != nil || len(list) != 1 || list[0].State != s.State || list[0].Reason != s.Reason {
			t.Errorf("%d left: cards: %+v, %v, want the state as in %+v", test.after, list, err, s)
		}
	}
}

// TestPINPolicies: how often the card is shown the PIN, and that a key is locked
// by itself.
func TestPINPolicies(t *testing.T) {
	_, b, cards := start(t, 1)
	once := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	always := create(t, b, keys.OnCard{PINPolicy: keys.PolicyAlways})
	never := create(t, b, keys.OnCard{PINPolicy: keys.PolicyNever})
	if err := unlockErr(t, b, never, rightPIN); fault.KindOf(err) != fault.BadRequest {
		t.Errorf("a key without a PIN: got %v, want bad-request", err)
	}
	unlock(t, b, once)
	wantError(t, "another key of the card", sign(soon(t), b, always), fault.PINRequired)
	unlock(t, b, always)
	for _, test := range []struct {
		key  keys.Material
		want int
	}{{once, 0}, {always, 3}, {never, 0}} {
		cards[0].Forget()
		for range 3 {
			if err := sign(soon(t), b, test.key); err != nil {
				t.Errorf("%s: %v", test.key.Card.PINPolicy, err)
			}
		}
		if got := cards[0].PINTries(); got != test.want {
			t.Errorf("%s: the PIN was sent %d times for 3 signatures, want %d", test.key.Card.PINPolicy, got, test.want)
		}
	}
	b.Lock(&once)
	wantError(t, "locked", sign(soon(t), b, once), fault.PINRequired)
	if err := sign(soon(t), b, always); err != nil {
		t.Errorf("the other key: %v", err)
	}
}

// TestManage: PIN, PUK and certificate.
func TestManage(t *testing.T) {
	_, b, cards := start(t, 1)
	m := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	public, err := keys.ParsePublic(m.Public)
	if err != nil {
		t.Fatal(err)
	}
	der := certificate(t, public)
	strange := certificate(t, certificateKey(t))
	ctx, pin, puk := soon(t), []byte(rightPIN), []byte(rightPUK)
	step := func(what string, err error, kind fault.Kind, says ...string) {
		t.Helper()
		wantError(t, what, err, kind, says...)
	}
	step("certificate, locked", b.StoreCertificate(ctx, m, der, nil, nil), fault.PINRequired, "PIN")
	step("certificate of another key", b.StoreCertificate(ctx, m, strange, pin, nil), fault.KeyMismatch)
	step("no certificate", b.StoreCertificate(ctx, m, []byte("x"), pin, nil), fault.BadRequest)
	step("certificate, PIN", b.StoreCertificate(ctx, m, der, pin, nil), "")
	unlock(t, b, m)
	step("certificate, unlocked", b.StoreCertificate(ctx, m, der, nil, nil), "")
	step("change, wrong PIN", b.ChangePIN(ctx, 1, []byte(wrongPIN), []byte("New-P1N")), fault.PINRequired, "2 tries")
	step("change, to the factory's", b.ChangePIN(ctx, 1, pin, []byte("123456")), fault.BadRequest)
	step("change", b.ChangePIN(ctx, 1, pin, []byte("New-P1N")), "")
	step("sign after a change", sign(ctx, b, m), fault.PINRequired)
	step("the old PIN", unlockErr(t, b, m, rightPIN), fault.PINRequired)
	step("the new PIN", unlockErr(t, b, m, "New-P1N"), "")
	step("sign", sign(ctx, b, m), "")
	step("change the PUK", b.ChangePUK(ctx, 1, puk, []byte("New-PUK!")), "")
	cards[0].SetPINLeft(0)
	step("unblock, old PUK", b.Unblock(ctx, 1, puk, pin), fault.PINRequired)
	step("unblock", b.Unblock(ctx, 1, []byte("New-PUK!"), pin), "")
	step("unblocked", unlockErr(t, b, m, rightPIN), "")
	cards[0].SetPUKLeft(1)
	step("the PUK's last try", b.Unblock(ctx, 1, []byte(wrongPIN), pin), fault.PINBlocked)
	list, err := b.Cards(ctx)
	if err != nil || len(list) != 1 || list[0].State != keys.StateReady || len(list[0].Slots) != 1 || !bytes.Equal(list[0].Slots[0].Certificate, der) || *list[0].PUKTries != 1 {
		t.Fatalf("cards: %+v, %v, want the certificate in its slot", list, err)
	}
	found := false
	for _, n := range list[0].Notes {
		found = found || strings.Contains(n.Message, "PUK")
	}
	if !found {
		t.Errorf("notes: %+v, want one on the PUK", list[0].Notes)
	}
}

func certificateKey(t *testing.T) any {
	t.Helper()
	c, err := x509.ParseCertificate(certificate(t, pivcard.NewAuthority("x").Certificate.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	return c.PublicKey
}

// TestSecretsStayInTheChild: no PIN is in what other programs see of the child, its
// arguments and environment, nor in the log; and it inherits nothing of the agent's.
func TestSecretsStayInTheChild(t *testing.T) {
	t.Setenv("HOLDFAST_TEST_SECRET", "must not be inherited")
	rig, first, _ := start(t, 1)
	first.Close()
	var log lockedBuilder
	c := config(t, rig)
	c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b := openPIV(t, c)
	m := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	unlock(t, b, m)
	if err := unlockErr(t, b, m, wrongPIN); err == nil || strings.Contains(err.Error(), wrongPIN) {
		t.Errorf("a wrong PIN: got %v", err)
	}
	pids := b.Workers()
	if len(pids) != 2 {
		t.Fatalf("children %v, want two", pids)
	}
	for _, pid := range pids {
		for _, file := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + file)
			if err != nil {
				t.Fatal(err)
			}
			for _, bad := range []string{rightPIN, wrongPIN, "HOLDFAST", "PATH="} {
				if bytes.Contains(text, []byte(bad)) {
					t.Errorf("%s of a child holds %q", file, bad)
				}
			}
			if file == "environ" && !bytes.Contains(text, []byte(rig.Socket())) {
				t.Errorf("a child is not told where pcscd is: %q", text)
			}
		}
	}
	b.Close()
	if text := log.String(); text == "" || strings.Contains(text, rightPIN) || strings.Contains(text, wrongPIN) {
		t.Errorf("log: %q", text)
	}
}

// TestRealPINSequences: as [TestPINSequences], with the real child and card: here it
// is the real code that must not spend the last try. As many as fit into the time.
func TestRealPINSequences(t *testing.T) {
	t.Parallel()
	rig, b, cards := start(t, 1)
	card := cards[0]
	all := []keys.Material{create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce}), create(t, b, keys.OnCard{PINPolicy: keys.PolicyAlways})}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	n := 0
	for begun, d := time.Now(), pace.Share(3*time.Second, 20*time.Second); time.Since(begun) < d; n++ {
		b.Lock(nil)
		card.SetPINLeft(3)
		card.SetPUKLeft(3)
		s := realSequence{t: t, b: b, card: card, rig: rig, left: 3}
		for range 2 + r.IntN(6) {
			s.step(r.IntN(1000), all[r.IntN(2)])
		}
		if err := b.Check(soon(t), all[0]); err != nil { // the card is done with what was cancelled
			t.Fatal(err)
		}
		if got := card.PINLeft(); got < s.left || got < 1 || card.PUKLeft() < 1 || t.Failed() {
			t.Fatalf("seed %d, sequence %d: %d tries are left, the person left %d; %d of the PUK", seed, n, got, s.left, card.PUKLeft())
		}
	}
	t.Logf("%d sequences on a card: 0 tries beyond wrong entries", n)
}

// A realSequence is a user with a card; left is how many tries the user may
// have left at the least.
type realSequence struct {
	t    *testing.T
	b    *piv.PIV
	card *pivcard.Card
	rig  *pivcard.Rig
	left int
}

func (s *realSequence) step(k int, m keys.Material) {
	s.t.Helper()
	right, wrong := []byte(rightPIN), []byte(wrongPIN)
	switch {
	case k < 280:
		s.gains(unlockErr(s.t, s.b, m, rightPIN))
	case k < 500:
		s.loses(unlockErr(s.t, s.b, m, wrongPIN))
	case k < 780:
		_ = sign(soon(s.t), s.b, m) // its own test says when it may
	case k < 830:
		s.b.Lock(&m)
	case k < 870:
		s.gains(s.b.Unblock(soon(s.t), 1, []byte(rightPUK), right))
	case k < 890:
		if s.b.Unblock(soon(s.t), 1, wrong, right) == nil {
			s.t.Error("a wrong PUK unblocks")
		}
	case k < 920:
		s.gains(s.b.ChangePIN(soon(s.t), 1, right, right))
	case k < 950:
		s.loses(s.b.ChangePIN(soon(s.t), 1, wrong, right))
	case k < 951:
		s.rig.Remove(s.card)
		s.rig.Insert(s.card)
		within(s.t, "inserted again", recovery, func() error { return s.b.Check(soon(s.t), m) })
	default:
		s.leaves(k, m)
	}
}

// gains notes what a right entry gives back.
func (s *realSequence) gains(err error) {
	if err == nil {
		s.left = 3
	}
}

// loses notes what a wrong entry may cost.
func (s *realSequence) loses(err error) {
	s.t.Helper()
	if err == nil {
		s.t.Error("a wrong PIN is taken")
	}
	s.left = max(s.left-1, 1)
}

// leaves has the user go while something is under way.
func (s *realSequence) leaves(k int, m keys.Material) {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(k%6)*time.Millisecond)
	defer cancel()
	if k%2 == 0 {
		_ = sign(ctx, s.b, m)
		return
	}
	_ = s.b.Unlock(ctx, m, []byte(wrongPIN), time.Now().Add(time.Hour))
	s.left = max(s.left-1, 1)
}

// TestStatusCountsTries: a success, a change and an unblock end what the status said of the
// tries left before.
func TestStatusCountsTries(t *testing.T) {
	_, b, cards := start(t, 1)
	m := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	wrong := func() error { return b.Unlock(soon(t), m, []byte(wrongPIN), time.Now().Add(time.Hour)) }
	want := func(step string, state keys.State, tries int) {
		t.Helper()
		s := b.Status(soon(t)).Units[0]
		if s.State != state || s.TriesLeft == nil || *s.TriesLeft != tries {
			t.Errorf("%s: state %s with %v tries left, want %s with %d", step, s.State, s.TriesLeft, state, tries)
		}
	}
	wantError(t, "wrong", wrong(), fault.PINRequired)
	want("a wrong PIN", keys.StateReady, 2)
	unlock(t, b, m)
	want("the right one", keys.StateReady, 3)
	cards[0].SetPINLeft(1)
	wantError(t, "the last try", wrong(), fault.PINBlocked)
	want("one try left", keys.StateLocked, 1)
	if err := b.Unblock(soon(t), 1, []byte(rightPUK), []byte(rightPIN)); err != nil {
		t.Fatal(err)
	}
	want("unblocked", keys.StateReady, 3)
	wantError(t, "wrong", wrong(), fault.PINRequired)
	if err := b.ChangePIN(soon(t), 1, []byte(rightPIN), []byte(wrongPIN)); err != nil {
		t.Fatal(err)
	}
	want("changed", keys.StateReady, 3)
}
