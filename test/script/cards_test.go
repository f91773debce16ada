package script_test

import (
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"holdfast/test/daemon"
	"holdfast/test/pivcard"
)

// readers is how many cards a script can have in at once.
const readers = 2

// touchTimeout is how long a card waits for a touch: less than a real one, and more
// than the second after which a user is told.
const touchTimeout = 4 * time.Second

// card puts a card into a reader, and takes it out again. An agent that is started
// when there was a card uses cards.
func card(ts *testscript.TestScript, neg bool, args []string) {
	refuseNot(ts, neg)
	w := worldOf(ts)
	if w.rig == nil {
		w.rig, w.cards = pivcard.Start(scriptTB{ts}, readers), map[string]*pivcard.Card{}
		ts.Setenv("PCSCLITE_CSOCK_NAME", w.rig.Socket()) // for other programs
	}
	switch {
	case len(args) == 2 && args[0] == "touch":
		after, err := time.ParseDuration(args[1])
		ts.Check(err)
		for _, c := range w.cards {
			c.TouchAfter(after)
		}
	case len(args) == 2 && args[0] == "remove":
		ts.Check(w.rig.Remove(w.cards[args[1]]))
	case len(args) == 2 && args[0] == "insert":
		ts.Check(w.rig.Insert(w.cards[args[1]]))
	case len(args) == 1 && args[0] == "pcscd-stop":
		w.rig.StopPCSCD()
	case len(args) == 1 || len(args) == 2:
		w.cards[args[0]] = newCard(ts, w.rig, args)
		ts.Check(w.rig.Insert(w.cards[args[0]]))
	default:
		ts.Fatalf("card %v: no such command", args)
	}
}

// newCard makes a card by its serial number and firmware.
func newCard(ts *testscript.TestScript, rig *pivcard.Rig, args []string) *pivcard.Card {
	serial, err := strconv.ParseUint(args[0], 10, 32)
	ts.Check(err)
	o := pivcard.Options{Serial: uint32(serial), TouchTimeout: touchTimeout}
	if len(args) == 2 && args[1] == "not-piv" {
		o.NotPIV = true
	} else if len(args) == 2 {
		o.Firmware, err = pivcard.ParseFirmware(args[1])
		ts.Check(err)
	}
	return rig.NewCard(o)
}

// cardsOf is how an agent finds the script's cards, or nil when it has none.
func cardsOf(w *world) *daemon.Cards {
	if w.rig == nil {
		return nil
	}
	return &daemon.Cards{Socket: w.rig.Socket(), Roots: w.rig.RootFile()}
}
