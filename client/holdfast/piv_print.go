package main

import (
	"crypto/x509"
	"fmt"
	"io"

	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

func (a *app) printCards(cards []agentwire.Card) error {
	if len(cards) == 0 {
		a.note("no card in any reader; holdfast doctor finds out why one is not seen")
	}
	for i, card := range cards {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := printCard(a.stdout, card); err != nil {
			return err
		}
	}
	return nil
}

// printCard shows a card: first itself, then its slots.
func printCard(w io.Writer, card agentwire.Card) error {
	about := cardRows(card)
	if card.Serial != 0 && len(card.Slots) == 0 && card.State == string(keys.StateReady) {
		about = append(about, []string{"slots", "all empty"})
	}
	if err := table(w, about...); err != nil || len(card.Slots) == 0 {
		return err
	}
	rows := [][]string{{"SLOT", "ALGORITHM", "KEY", "PIN", "TOUCH", "MADE", "CERTIFICATE"}}
	for _, s := range card.Slots {
		rows = append(rows, slotRow(s))
	}
	return table(w, rows...)
}

func cardRows(card agentwire.Card) [][]string {
	rows := [][]string{{"reader", card.Reader}}
	if card.Serial != 0 {
		rows = [][]string{{"card", fmt.Sprint(card.Serial)}, {"reader", card.Reader}}
	}
	state := card.State
	if card.Reason != "" {
		state += ": " + card.Reason
	}
	rows = append(rows, withHint([]string{"state", state}, card.Hint)...)
	if card.Firmware != "" {
		rows = append(rows, []string{"firmware", card.Firmware})
	}
	if card.PINTries != nil || card.DefaultPIN != nil {
		rows = append(rows, []string{"PIN", triesOf(card.PINTries, card.DefaultPIN)}, []string{"PUK", triesOf(card.PUKTries, card.DefaultPUK)},
			[]string{"management", managementOf(card)})
	}
	if card.Attests != nil {
		rows = append(rows, []string{"attestation", map[bool]string{
			true: "it proves which keys it made", false: "it cannot prove that it made a key",
		}[*card.Attests]})
	}
	for _, n := range gathered(card.Notes) {
		rows = append(rows, withHint([]string{"note", n.Message}, n.Hint)...)
	}
	return rows
}

// triesOf describes a PIN or PUK.
func triesOf(tries *int, factory *bool) string {
	text := "tries left unknown"
	if tries != nil {
		text = plural(*tries, "try", "tries") + " left"
	}
	if tries != nil && *tries == 0 {
		text = "blocked"
	}
	if factory != nil && *factory {
		text += ", still the factory's"
	}
	return text
}

// managementOf describes the management key of a card.
func managementOf(card agentwire.Card) string {
	switch {
	case card.DefaultManagement != nil && *card.DefaultManagement:
		return "the factory default, which is public"
	case card.ProtectedManagement:
		return "a key that is kept on the card, where the PIN opens it"
	}
	return "a key that is not kept on the card"
}

func slotRow(s agentwire.CardSlot) []string {
	algorithm := algorithmOf(agentwire.Key{Algorithm: s.Algorithm, RSABits: s.RSABits})
	made := "-"
	if s.Generated != nil {
		made = map[bool]string{true: "on the card", false: "elsewhere"}[*s.Generated]
	}
	return []string{
		s.Slot, dash(algorithm), slotKey(s), dash(s.PINPolicy), dash(s.TouchPolicy), made, slotCertificate(s),
	}
}

// slotKey names the agent's key in a slot.
func slotKey(s agentwire.CardSlot) string {
	if s.Key == "" && s.Taken {
		return "(another user's)"
	}
	return dash(s.Key)
}

func slotCertificate(s agentwire.CardSlot) string {
	if len(s.Certificate) == 0 {
		return "none"
	}
	c, err := x509.ParseCertificate(s.Certificate)
	if err != nil {
		return "damaged"
	}
	return c.Subject.String()
}
