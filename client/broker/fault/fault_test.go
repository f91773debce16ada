package fault

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"holdfast/agent/keys"
	"holdfast/client/broker/wire"
)

func TestErrorsCross(t *testing.T) {
	for _, kind := range Kinds() {
		want := &keys.Error{Kind: kind, Message: "a fact", Hint: "a step", RetryAfter: 1500 * time.Millisecond}
		got, ok := To(From(want))
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", kind, got, ok, want)
		}
	}
	name, parameters := From(errors.New("secret"))
	if want := (Parameters{Message: "internal error", Hint: "the broker's log has the cause"}); name != wire.Interface+".Internal" || parameters != want {
		t.Errorf("an error of no kind: got %s %+v", name, parameters)
	}
	if _, ok := To("io.holdfast.Agent.Denied", Parameters{}); ok {
		t.Error("an error of the agent's became one of ours")
	}
}
