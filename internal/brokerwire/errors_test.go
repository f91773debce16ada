package brokerwire

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"holdfast/internal/fault"
)

func TestErrorsCross(t *testing.T) {
	for _, kind := range Kinds() {
		want := &fault.Error{Kind: kind, Message: "a fact", Hint: "a step", RetryAfter: 1500 * time.Millisecond}
		got, ok := Errors().ToError(Errors().FromError(want))
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", kind, got, ok, want)
		}
	}
	name, parameters := Errors().FromError(errors.New("secret"))
	if want := (fault.Parameters{Message: "internal error", Hint: "the broker's log has the cause"}); name != Interface+".Internal" || parameters != want {
		t.Errorf("an error of no kind: got %s %+v", name, parameters)
	}
	if _, ok := Errors().ToError("io.holdfast.Agent.Denied", fault.Parameters{}); ok {
		t.Error("an error of the agent's became one of ours")
	}
}
