package agent_test

import (
	"testing"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// A card and its notes carry the next step for programs, and the same in words where the
// card gives no words of its own.
func TestCardsCarryTheirNextStep(t *testing.T) {
	r := newRig(t, withCards(1))
	unblock := fault.Next{Do: fault.Unblock, Card: 1}
	r.cards.Describe(1, func(c *keys.Card) {
		c.Next = unblock
		c.Notes = []keys.CardNote{
			{Message: "typed", Hint: "in words", Next: fault.Next{Do: fault.SetUpCard}},
			{Message: "not typed", Hint: "clean the reader"},
		}
	})
	var reply agentwire.ListCardsReply
	if err := r.call(agentwire.ListCards, agentwire.Empty{}, &reply); err != nil {
		t.Fatal(err)
	}
	c := reply.Cards[0]
	if c.Next == nil || *c.Next != unblock || c.Hint != "holdfast piv unblock --card 1" {
		t.Errorf("got the step %+v and the hint %q", c.Next, c.Hint)
	}
	typed, plain := c.Notes[0], c.Notes[1]
	if typed.Next == nil || typed.Next.Do != fault.SetUpCard || typed.Hint != "in words" {
		t.Errorf("got the note %+v", typed)
	}
	if plain.Next != nil || plain.Hint != "clean the reader" {
		t.Errorf("got the note %+v", plain)
	}
}
