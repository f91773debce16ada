package main

import (
	"encoding/json"
	"strings"
	"testing"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
)

func TestChangePIN(t *testing.T) {
	agent, _ := withCards(t, clienttest.NewCard(7))
	p := openPTY(t)
	p.answer(t, "The old PIN of card 7 (3 tries left): ", clienttest.CardPIN+"\n",
		"The new PIN (6 to 8 digits, letters or signs): ", "hunter2!\n", "The same again: ", "hunter2!\n")
	p.command(t, agent.Socket).run("piv", "change-pin").want(t, 0, "card 7 has a new PIN\n")
	var sent agentwire.ChangeCardParameters
	check(t, json.Unmarshal(agent.Calls(agentwire.ChangeCardPIN)[0].Parameters, &sent))
	if sent.Card != 7 || string(sent.Old) != clienttest.CardPIN || string(sent.New) != "hunter2!" {
		t.Errorf("got %+v on the wire", sent)
	}
	p = openPTY(t)
	p.answer(t, "left): ", clienttest.CardPIN+"\n", "signs): ", "hunter2!\n", "again: ", "hunter3!\n")
	p.command(t, agent.Socket).run("piv", "change-pin").want(t, 5, "the two are not the same")
	p = openPTY(t)
	p.answer(t, "left): ", "\n")
	p.command(t, agent.Socket).run("piv", "change-pin").want(t, 5, "no old PIN was entered")
	if n := len(agent.Calls(agentwire.ChangeCardPIN)); n != 1 {
		t.Errorf("changed %d times, want once", n)
	}
}

func TestChangePUK(t *testing.T) {
	agent, c := withCards(t, clienttest.NewCard(7))
	c.stdin = clienttest.CardPUK + "\n97531086\n"
	c.run("piv", "change-puk", "--old-puk-fd", "0", "--puk-fd", "0").want(t, 0, "card 7 has a new PUK\n")
	c.stdin = clienttest.CardPUK
	got := c.run("piv", "change-puk", "--old-puk-fd", "0", "--generate-puk")
	got.want(t, 0, "PUK of card 7: ")
	var sent agentwire.ChangeCardParameters
	check(t, json.Unmarshal(agent.Calls(agentwire.ChangeCardPUK)[1].Parameters, &sent))
	if string(sent.Old) != clienttest.CardPUK || !strings.Contains(got.stdout, "PUK of card 7: "+string(sent.New)+"\n") {
		t.Errorf("got %+v on the wire, and told the person %q", sent, got.stdout)
	}
	c.stdin = "13572469"
	c.run("piv", "change-puk", "--old-puk-fd", "0", "--generate-puk").want(t, 5, "the PIN is wrong", "hint: try again; holdfast piv list shows")
	c.stdin = "135799\n864209"
	c.run("piv", "change-pin", "--old-pin-fd", "0", "--pin-fd", "0").want(t, 5, "the PIN is wrong", "hint: try again; holdfast piv unblock")
	c.run("piv", "change-puk", "--puk-fd", "0", "--generate-puk").want(t, 2, "exclude each other")
}

func TestUnblock(t *testing.T) {
	agent, c := withCards(t, clienttest.NewCard(7))
	zero := 0
	agent.Cards[0].PINTries = &zero
	p := openPTY(t)
	p.answer(t, "The PUK of card 7 (3 tries left): ", clienttest.CardPUK+"\n", "signs): ", "864209\n", "again: ", "864209\n")
	p.command(t, agent.Socket).run("piv", "unblock", "--card", "7").want(t, 0, "card 7 has a new PIN\n")
	var sent agentwire.UnblockCardParameters
	check(t, json.Unmarshal(agent.Calls(agentwire.UnblockCard)[0].Parameters, &sent))
	if sent.Card != 7 || string(sent.PUK) != clienttest.CardPUK || string(sent.PIN) != "864209" {
		t.Errorf("got %+v on the wire", sent)
	}
	c.stdin = clienttest.CardPUK + "\n" + clienttest.CardPUK
	c.run("piv", "unblock", "--puk-fd", "0", "--pin-fd", "0").want(t, 1, "PIN and PUK are the same")
}

// The last try is never spent, and no prompt asks for a PIN that cannot work.
func TestLastTryIsNotSpent(t *testing.T) {
	agent, c := withCards(t, clienttest.NewCard(7))
	c.stdin = clienttest.CardPIN + "\n864209\n"
	for tries, texts := range map[int][2]string{0: {"is blocked", "is blocked"}, 1: {"one try of its PIN left", "one try of its PUK left"}} {
		agent.Cards[0].PINTries, agent.Cards[0].PUKTries = &tries, &tries
		c.run("piv", "change-pin", "--old-pin-fd", "0", "--pin-fd", "0").want(t, 5, texts[0], "holdfast piv unblock")
		c.run("piv", "change-puk", "--old-puk-fd", "0", "--generate-puk").want(t, 5, texts[1], "ykman piv")
		c.run("piv", "unblock", "--puk-fd", "0", "--pin-fd", "0").want(t, 5, texts[1], "ykman piv")
	}
	for _, method := range []string{agentwire.ChangeCardPIN, agentwire.ChangeCardPUK, agentwire.UnblockCard} {
		if n := len(agent.Calls(method)); n != 0 {
			t.Errorf("%s was called %d times", method, n)
		}
	}
}

func TestNoPersonForPIN(t *testing.T) {
	_, c := withCards(t, clienttest.NewCard(7))
	for _, name := range []string{"change-pin", "change-puk", "unblock"} {
		c.run("piv", name).want(t, 5, "there is no terminal to ask for it", "3 3<FILE")
	}
}
