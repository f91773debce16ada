package piv

import (
	"strings"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// TestNotes: what is said of a card, in one note for each fact, and nothing that
// the state says already.
func TestNotes(t *testing.T) {
	yes, no := true, false
	tries := func(n int) *int { return &n }
	for name, test := range map[string]struct {
		card keys.Card
		want []string
	}{
		"well":                   {keys.Card{PINTries: tries(3), PUKTries: tries(3), DefaultPIN: &no}, nil},
		"two tries":              {keys.Card{PINTries: tries(2), PUKTries: tries(2)}, []string{"2 tries of the PIN are", "2 tries of the PUK are"}},
		"the last of the PUK":    {keys.Card{PUKTries: tries(1)}, []string{"1 try of the PUK is left"}},
		"the PUK is blocked":     {keys.Card{PUKTries: tries(0)}, []string{"the PUK is blocked"}},
		"old firmware":           {keys.Card{PINTries: tries(3)}, []string{"cannot tell how many tries of its PUK"}},
		"PIN blocked":            {keys.Card{State: keys.StateLocked, PINTries: tries(0), PUKTries: tries(3)}, nil},
		"and the PUK nearly":     {keys.Card{State: keys.StateLocked, PINTries: tries(0), PUKTries: tries(1)}, nil},
		"one of the factory":     {keys.Card{PUKTries: tries(3), DefaultPUK: &yes, DefaultPIN: &no}, []string{"the PUK is the factory default"}},
		"two of the factory":     {keys.Card{PUKTries: tries(3), DefaultPUK: &yes, DefaultPIN: &yes}, []string{"the PIN and PUK are the factory defaults"}},
		"all of the factory":     {keys.Card{PUKTries: tries(3), DefaultPIN: &yes, DefaultPUK: &yes, DefaultManagement: &yes}, []string{"the PIN, PUK and management key are the factory defaults"}},
		"in use":                 {keys.Card{State: keys.StateBusy, Reason: "the reader is in use by another program"}, nil},
		"in use by scdaemon":     {keys.Card{State: keys.StateBusy, Reason: "the reader is in use by scdaemon", Next: fault.Next{Do: fault.ShareCard}}, []string{"in use by scdaemon"}},
		"failed, notes are moot": {keys.Card{State: keys.StateFailed, PUKTries: tries(0)}, nil},
	} {
		if test.card.State == "" {
			test.card.State = keys.StateReady
		}
		test.card.Serial, test.card.Firmware = 7, "5.7.4"
		got := noted(test.card).Notes
		good := len(got) == len(test.want)
		for i := range test.want {
			good = good && strings.Contains(got[i].Message, test.want[i]) && (got[i].Hint != "" || got[i].Next.String() != "")
		}
		if !good {
			t.Errorf("%s: %+v, want %q", name, got, test.want)
		}
	}
}

// TestSpent: what a card is that takes no PIN any more, and what helps.
func TestSpent(t *testing.T) {
	three, two, one, none := 3, 2, 1, 0
	for _, test := range []struct {
		pin, puk   *int
		says, hint string
	}{
		{nil, nil, "", ""}, {&three, &three, "", ""}, {&two, &none, "", ""},
		{&one, &three, "PIN has one try left, and holdfast never uses the last one", "holdfast piv unblock --card 7"},
		{&none, &two, "PIN is blocked", "holdfast piv unblock --card 7"},
		{&none, nil, "PIN is blocked", "holdfast piv unblock --card 7"},
		{&none, &one, "PIN is blocked, and its PUK has one try left", "only a reset"},
		{&none, &none, "PIN is blocked, and so is its PUK", "only a reset"},
	} {
		e := spent(7, test.pin, test.puk)
		if (e == nil) != (test.says == "") {
			t.Errorf("%+v: %v", test, e)
			continue
		}
		if e != nil && (!strings.Contains(e.Message, test.says) || !strings.Contains(e.Advice(), test.hint)) {
			t.Errorf("%q, %q, want %q, %q", e.Message, e.Advice(), test.says, test.hint)
		}
	}
}

// TestNoteProof: a root is named with piv-roots only where a card has an attestation key.
func TestNoteProof(t *testing.T) {
	p := new(PIV)
	c := noteProof(keys.Card{}, p.attests(card{serial: 7}, nil))
	if len(c.Notes) != 1 || strings.Contains(c.Notes[0].Hint, "piv-roots") || !strings.Contains(c.Notes[0].Hint, "--allow-unattested") {
		t.Errorf("got %+v", c.Notes)
	}
	if c = noteProof(keys.Card{}, nil); len(c.Notes) != 0 {
		t.Errorf("got %+v", c.Notes)
	}
}
