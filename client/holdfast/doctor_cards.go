package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/agent/keys"
	"holdfast/agent/wire"
	"holdfast/client"
)

// cardsTime is how long a look at all cards may take: the agent gives each 5 s.
const cardsTime = 20 * time.Second

// cards looks at security keys: those that the agent sees, and why it sees none.
// That a card is not in its reader is nothing wrong; that none could be used is,
// where keys are on cards.
func (f *findings) cards(ctx context.Context, c *client.Client, m machine, s wire.GetStatusReply) {
	list, _ := c.Keys(ctx, false) // what is wrong with the keys is said elsewhere
	if !slices.ContainsFunc(s.Devices, func(d wire.Device) bool { return d.Backend == pivBackend }) {
		f.noCards(m)
		f.pinentry(m, list, false)
		return
	}
	report := f.note
	if slices.ContainsFunc(list, func(k wire.Key) bool { return k.Place != nil }) {
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
	if err == nil && !slices.ContainsFunc(cards, func(card wire.Card) bool { return card.Serial != 0 }) {
		f.noCardSeen(m)
	}
	f.absentCards(list, cards)
	f.pinentry(m, list, true)
}

// noCards says why the agent uses no cards. It is worth a note where there is one.
func (f *findings) noCards(m machine) {
	message, hint := "holdfast-piv, which speaks to cards, is not installed", "install the holdfast package's holdfast-piv, pcscd and libpcsclite1"
	if m.exists("/usr/libexec/holdfast/holdfast-piv") {
		message, hint = "the agent uses no cards, although holdfast-piv is installed", "start it with --piv on, or with piv: on in its configuration"
	}
	if m.usbKey() {
		f.note("cards", "a YubiKey is plugged in; "+message, hint)
		return
	}
	f.ok("cards", "none is used: %s", message)
}

// cardsFault explains why the agent cannot look at cards at all.
func (f *findings) cardsFault(m machine, report func(subject, message, hint string), mode string, err error) {
	e, fromAgent := keys.AsError(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		report("cards", fmt.Sprintf("the agent has not looked at the cards within %s", cardsTime), "take them out and put them in again")
	case fromAgent && strings.Contains(e.Hint, "polkit"):
		report("cards", e.Message+": polkit refuses it", polkitHint(m, mode))
	case fromAgent && e.Kind == keys.DeviceAbsent && f.pcscd(m, report):
	default:
		report("cards", explain(err).message, explain(err).hint)
	}
}

// polkitHint says who has to be let in. By itself polkit lets in whoever sits in
// front of the machine.
func polkitHint(m machine, mode string) string {
	switch {
	case mode != "system":
		return "log in at the machine itself rather than by ssh, or allow your user org.debian.pcsc-lite.access_pcsc and .access_card in /etc/polkit-1/rules.d"
	case m.exists("/usr/share/polkit-1/rules.d/holdfast.rules"):
		return "the rule is there: does the agent run as the user holdfast? systemctl restart polkit reads the rules again"
	}
	return "/usr/share/polkit-1/rules.d/holdfast.rules of the holdfast package lets the agent in: install it"
}

// pcscd looks for the service that speaks to readers, and reports what it lacks.
func (f *findings) pcscd(m machine, report func(subject, message, hint string)) bool {
	const socket = "/run/pcscd/pcscd.comm"
	switch {
	case !m.exists("/usr/sbin/pcscd") && !m.exists("/usr/bin/pcscd"):
		report("pcscd", "pcscd, which speaks to card readers, is not installed",
			"apt install pcscd (dnf install pcsc-lite pcsc-lite-ccid; pacman -S pcsclite ccid), then: systemctl enable --now pcscd.socket")
	case !m.exists(socket):
		report("pcscd", "pcscd is installed and does not run: there is no "+socket, "systemctl enable --now pcscd.socket")
	default:
		return false
	}
	return true
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

// card passes on what the agent found out about a card.
func (f *findings) card(m machine, card wire.Card) {
	subject := "reader" // which one, the reason says
	if card.Serial != 0 {
		subject = cardName(card)
	}
	switch keys.State(card.State) {
	case keys.StateReady:
		f.ok(subject, "in %s, firmware %s; PIN: %s", card.Reader, card.Firmware, triesOf(card.PINTries, card.DefaultPIN))
	case keys.StateAbsent:
		f.note(subject, card.Reason, card.Hint)
	case keys.StateBusy:
		hint := card.Hint
		if strings.Contains(card.Reason, "scdaemon") || m.scdaemon() {
			hint = m.shareHint()
		}
		f.bad(subject, card.Reason, hint)
	default:
		f.bad(subject, fmt.Sprintf("it is %s: %s", card.State, card.Reason), orElse(card.Hint, "take it out and put it in again"))
	}
	for _, n := range card.Notes {
		if n.Message != card.Reason {
			f.note(subject, n.Message, n.Hint)
		}
	}
}

// absentCards names the keys whose card is in no reader.
func (f *findings) absentCards(list []wire.Key, cards []wire.Card) {
	for _, k := range list {
		if k.Place != nil && !slices.ContainsFunc(cards, func(card wire.Card) bool { return card.Serial == k.Place.Card }) {
			f.note("key "+k.Name, fmt.Sprintf("its card, %d, is in no reader", k.Place.Card), "insert it to use the key")
		}
	}
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// pinentry looks for a program that the agent can ask for PINs with, where PINs are
// wanted.
func (f *findings) pinentry(m machine, list []wire.Key, cards bool) {
	if !cards && !slices.ContainsFunc(list, func(k wire.Key) bool { return k.PIN }) {
		return
	}
	for _, directory := range []string{"/usr/bin/", "/usr/local/bin/"} {
		for _, name := range []string{"pinentry", "pinentry-gnome3", "pinentry-qt", "pinentry-gtk-2", "pinentry-curses", "pinentry-tty"} {
			if m.exists(directory + name) {
				f.ok("pinentry", "%s%s is there to ask for PINs", directory, name)
				return
			}
		}
	}
	f.note("pinentry", "no pinentry is installed, so the agent cannot ask for PINs",
		"apt install pinentry-curses, for the desktop pinentry-gnome3 or pinentry-qt; holdfast unlock NAME works without")
}
