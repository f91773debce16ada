package logind

import (
	"testing"

	"github.com/godbus/dbus/v5"
)

func ended(i *inbox) bool {
	select {
	case <-i.over:
		return true
	default:
		return false
	}
}

// Signals that are not handled in time are not dropped silently: one of them may
// have been the lock. The connection ends, and the next one asks.
func TestFullInbox(t *testing.T) {
	i := newInbox()
	i.first(":1.7")
	lock := &dbus.Signal{Sender: ":1.7", Name: session + ".Lock"}
	for range maxWaiting - 1 {
		i.DeliverSignal("", "", lock)
	}
	forged := &dbus.Signal{Sender: ":1.8", Name: session + ".Lock"}
	i.DeliverSignal("", "", forged)
	if ended(i) {
		t.Error("somebody else's signal took a place")
	}
	i.DeliverSignal("", "", lock)
	i.DeliverSignal("", "", lock)
	if !ended(i) {
		t.Error("signals were lost, and nobody hears of it")
	}
	i.Terminate()
}

// The bus may announce a new logind before it answers the request for its name.
func TestOwnerThatChanges(t *testing.T) {
	changed := func(name any) *dbus.Signal {
		return &dbus.Signal{Sender: theBus, Name: ownerSignal, Body: []any{login1, "", name}}
	}
	for name, test := range map[string]struct {
		told  []*dbus.Signal
		asked string
		want  string
	}{
		"asked alone":             {nil, ":1.7", ":1.7"},
		"told before the answer":  {[]*dbus.Signal{changed(":1.8")}, ":1.7", ":1.8"},
		"gone before the answer":  {[]*dbus.Signal{changed(":1.8"), changed("")}, ":1.7", ""},
		"told about another name": {[]*dbus.Signal{{Sender: theBus, Name: ownerSignal, Body: []any{"org.example", "", ":1.9"}}}, ":1.7", ":1.7"},
		"told nonsense":           {[]*dbus.Signal{changed(7), {Sender: theBus, Name: ownerSignal}}, ":1.7", ":1.7"},
		"told by somebody":        {[]*dbus.Signal{{Sender: ":1.9", Name: ownerSignal, Body: []any{login1, "", ":1.9"}}}, ":1.7", ":1.7"},
	} {
		i := newInbox()
		for _, s := range test.told {
			i.DeliverSignal("", "", s)
		}
		i.first(test.asked)
		last := ""
		for len(i.signals) > 0 {
			last, _ = newOwner(<-i.signals)
		}
		if *i.owner != test.want || last != test.want {
			t.Errorf("%s: it believes %q and says %q, want %q", name, *i.owner, last, test.want)
		}
	}
}
