package piv_test

import (
	"testing"

	"holdfast/internal/keys"
	"holdfast/internal/keys/keystest"
	"holdfast/piv"
	"holdfast/test/pivcard"
)

// TestKeystest: the suite that every backend passes, on a card behind pcscd.
func TestKeystest(t *testing.T) {
	keystest.Run(t, func(t *testing.T) keystest.Harness {
		card, rig := freshCard(t, 4711)
		return keystest.Harness{
			Open:  func(t *testing.T) keys.Backend { return openPIV(t, config(t, rig)) },
			Other: func(t *testing.T) keys.Backend { _, other := freshCard(t, 4712); return openPIV(t, config(t, other)) },
			Can: []keys.Capability{
				{Algorithm: keys.ES256}, {Algorithm: keys.ES384}, {Algorithm: keys.RS256, RSABits: 2048},
			},
			Slots:     3,
			WrongPINs: 2, // of three, the last of which is not ours to spend
			PIN:       rightPIN, WrongPIN: wrongPIN, SharedPIN: true,
			Prepare:    func(t *keys.Template) { t.Card.PIN = []byte(rightPIN) },
			Persistent: true,
			Stall: func(*testing.T) func() {
				card.Order(pivcard.Hang().Lasting())
				return card.Mend
			},
		}
	})
}

// freshCard returns a card that is set up, in a reader of its own pcscd.
func freshCard(t *testing.T, serial uint32) (*pivcard.Card, *pivcard.Rig) {
	t.Helper()
	rig := pivcard.Start(t, 2)
	card := rig.NewCard(pivcard.Options{Serial: serial})
	rig.Insert(card)
	b, err := piv.Open(config(t, rig))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	setUp(t, b, serial)
	return card, rig
}
