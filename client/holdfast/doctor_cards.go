package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// cardsTime is the timeout for listing all cards: the agent allows 5 s for each.
const cardsTime = 20 * time.Second

// cards checks security keys: those that the agent sees, and why it sees none. A card
// that is not in its reader is no fault. That no card could be used is one where keys
// are on cards, or can be nowhere else.
func (f *findings) cards(ctx context.Context, c *client.Client, m machine, s agentwire.GetStatusReply) {
	list, _ := c.Keys(ctx, false) // findings.keys reports the error
	if !slices.ContainsFunc(s.Devices, func(d agentwire.Device) bool { return d.Backend == pivBackend }) {
		f.noCards(m, s.PID)
		f.pinentry(m, list, false)
		return
	}
	report := f.note
	other := slices.ContainsFunc(s.Devices, func(d agentwire.Device) bool { return d.Backend != pivBackend })
	if !other || slices.ContainsFunc(list, func(k agentwire.Key) bool { return k.Place != nil }) {
		report = f.bad
	}
	ctx, cancel := context.WithTimeout(ctx, cardsTime)
	defer cancel()
	cards, err := c.ListCards(ctx)
	if err != nil {
		f.cardsFault(m, report, s.Mode, err)
	}
	for _, card := range cards {
		f.card(m, card)
	}
	if err == nil && !slices.ContainsFunc(cards, func(card agentwire.Card) bool { return card.Serial != 0 }) {
		f.noCardSeen(m)
	}
	f.absentCards(list, cards)
	f.pinentry(m, list, true)
}

// noCards reports why the agent uses no cards. It is a note where a card is plugged in.
func (f *findings) noCards(m machine, agent int) {
	message, hint := "the agent was started without cards", "start it with --piv on, or with piv: on in its configuration; that needs holdfast-piv, pcscd and libpcsclite1"
	if installed, known := m.hasPIV(agent); installed {
		message, hint = "the agent uses no cards, although holdfast-piv is installed (piv: off)", "start it with --piv on, or with piv: on in its configuration"
	} else if known {
		message, hint = "holdfast-piv, which speaks to cards, is not installed", "install the holdfast package's holdfast-piv, pcscd and libpcsclite1"
	}
	if m.usbKey() {
		f.note("cards", "a YubiKey is plugged in; "+message, hint)
		return
	}
	f.ok("cards", "none is used: %s", message)
}

// hasPIV reports whether holdfast-piv is at one of the places where an agent looks for
// it. That is not known where another user's agent hides its program.
func (m machine) hasPIV(agent int) (installed, known bool) {
	places := []string{"/usr/libexec/holdfast/holdfast-piv"}
	program, err := os.Readlink(m.path("/proc", strconv.Itoa(agent), "exe"))
	if directory := filepath.Dir(program); err == nil {
		places = append(places, filepath.Join(directory, "holdfast-piv"), filepath.Join(directory, "../libexec/holdfast/holdfast-piv"))
	}
	return slices.ContainsFunc(places, m.exists), err == nil
}

// cardsFault explains why the agent cannot look at cards at all.
func (f *findings) cardsFault(m machine, report func(subject, message, hint string), mode string, err error) {
	e, fromAgent := fault.AsError(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		report("cards", fmt.Sprintf("the agent has not looked at the cards within %s", cardsTime), "take them out and put them in again")
	case fromAgent && e.Next.Do == fault.AllowPCSCD:
		report("cards", e.Message+": polkit refuses it", polkitHint(m, mode))
	case fromAgent && e.Kind == fault.DeviceAbsent && f.pcscd(m, report):
	case fromAgent && e.Kind == fault.DeviceFailed && m.lacksPCSCLibrary() && f.pcscd(m, report):
	default:
		report("cards", explain(err).message, explain(err).hint)
	}
}

// noCardSeen explains why pcscd, which answers, sees no card.
func (f *findings) noCardSeen(m machine) {
	switch {
	case m.usbKey() && m.scdaemon():
		f.note("cards", "a YubiKey is plugged in, and scdaemon (gpg) keeps it from pcscd", m.shareHint())
	case m.usbKey():
		f.note("cards", "a YubiKey is plugged in, and pcscd does not see it",
			"is the driver there (apt install libccid), and CCID enabled on the key (ykman config usb --enable PIV)?")
	default:
		f.ok("cards", "none is in any reader")
	}
}

// card reports the state of a card as the agent gives it.
func (f *findings) card(m machine, card agentwire.Card) {
	subject := "reader" // which one, the reason says
	if card.Serial != 0 {
		subject = cardName(card)
	}
	switch keys.State(card.State) {
	case keys.StateReady:
		if pinSpent(card) {
			f.bad(subject, fmt.Sprintf("in %s, firmware %s; PIN: %s", card.Reader, card.Firmware, triesOf(card.PINTries, card.DefaultPIN)),
				fmt.Sprintf("holdfast piv unblock --card %d sets a new PIN, with the PUK; the last try is never spent", card.Serial))
			break
		}
		f.ok(subject, "in %s, firmware %s; PIN: %s", card.Reader, card.Firmware, triesOf(card.PINTries, card.DefaultPIN))
	case keys.StateAbsent:
		f.note(subject, card.Reason, card.Hint)
	case keys.StateBusy:
		hint := card.Hint
		if does(card.Next, fault.ShareCard) || m.scdaemon() {
			hint = m.shareHint()
		}
		f.bad(subject, card.Reason, hint)
	default:
		f.bad(subject, fmt.Sprintf("it is %s: %s", card.State, card.Reason), cmp.Or(card.Hint, "take it out and put it in again"))
	}
	for _, n := range gathered(card.Notes) {
		known := n.Message == card.Reason || pinSpent(card) && does(n.Next, fault.Unblock)
		if !known {
			f.note(subject, n.Message, n.Hint)
		}
	}
}

// does reports whether a next step is step.
func does(next *fault.Next, step fault.Step) bool { return next != nil && next.Do == step }

// pinSpent reports whether no PIN may be tried on a card.
func pinSpent(card agentwire.Card) bool { return card.PINTries != nil && *card.PINTries < 2 }

// gathered joins the notes that have the same hint.
func gathered(notes []agentwire.Notice) []agentwire.Notice {
	var all []agentwire.Notice
	for _, n := range notes {
		i := slices.IndexFunc(all, func(before agentwire.Notice) bool { return n.Hint != "" && before.Hint == n.Hint })
		if i < 0 {
			all = append(all, n)
			continue
		}
		all[i].Message += "; " + n.Message
	}
	return all
}

// absentCards names the cards that are in no reader, and the keys on each.
func (f *findings) absentCards(list []agentwire.Key, cards []agentwire.Card) {
	var serials []uint32
	names := map[uint32][]string{}
	for _, k := range list {
		if k.Place == nil || slices.ContainsFunc(cards, func(card agentwire.Card) bool { return card.Serial == k.Place.Card }) {
			continue
		}
		serial := k.Place.Card
		if names[serial] == nil {
			serials = append(serials, serial)
		}
		names[serial] = append(names[serial], k.Name)
	}
	for _, serial := range serials {
		on := names[serial]
		f.note(fmt.Sprintf("card %d", serial), "it is in no reader; on it: "+strings.Join(on, ", "), "insert it to use "+map[bool]string{true: "the key", false: "the keys"}[len(on) == 1])
	}
}
