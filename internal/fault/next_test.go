package fault

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestNextInWords(t *testing.T) {
	for _, test := range []struct {
		next Next
		want string
	}{
		{Next{}, ""},
		{Next{Do: "later than this program"}, ""},
		{Next{Do: Unlock, Key: "laptop"}, "holdfast unlock laptop"},
		{Next{Do: Unlock}, "holdfast unlock NAME"},
		{Next{Do: Enroll, Profile: "prod"}, "holdfast enroll kubernetes prod"},
		{Next{Do: Enroll, Key: "laptop"}, "holdfast enroll kubernetes PROFILE --key laptop"},
		{Next{Do: EnrollNew, Key: "laptop", Profile: "prod"}, "holdfast enroll kubernetes prod --key laptop --create"},
		{Next{Do: Adopt, Key: "laptop", Slot: "9a", Card: 4711}, "holdfast key adopt laptop --slot 9a --card 4711"},
		{Next{Do: SetUpCard, Card: 4711}, "holdfast piv setup --card 4711"},
		{Next{Do: Unblock}, "holdfast piv unblock"},
		{Next{Do: InsertCard, Card: 4711}, "insert card 4711"},
		{Next{Do: InsertCard}, "insert the card"},
	} {
		if got := test.next.String(); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.next, got, test.want)
		}
	}
	for _, step := range Steps() {
		if (Next{Do: step}).String() == "" {
			t.Errorf("%s has no words", step)
		}
	}
}

func TestAdvice(t *testing.T) {
	next := Next{Do: Unlock, Key: "laptop"}
	if got, want := (&Error{Next: next}).Advice(), "holdfast unlock laptop"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (&Error{Next: next, Hint: "in words"}).Advice(), "in words"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A next step crosses the wire twice: as text for any client, and typed.
func TestNextCrosses(t *testing.T) {
	i := Interface{Name: "org.example", Kinds: Kinds()}
	sent := &Error{Kind: PINRequired, Message: "a fact", Next: Next{Do: Unlock, Key: "laptop"}}
	name, p := i.FromError(sent)
	line, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"hint":"holdfast unlock laptop","next":{"do":"unlock","key":"laptop"}`; !strings.Contains(string(line), want) {
		t.Errorf("got %s, want %s in it", line, want)
	}
	var back Parameters
	if err := json.Unmarshal(line, &back); err != nil {
		t.Fatal(err)
	}
	got, ok := i.ToError(name, back)
	if !ok || !reflect.DeepEqual(got, sent) {
		t.Errorf("got %+v, want %+v", got, sent)
	}
}
