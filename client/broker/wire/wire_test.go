package wire

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"holdfast/agent/keys"
	"holdfast/client/varlink"
	"holdfast/client/varlink/varlinktest"
)

// Whatever the interface file has must be here.
func TestInterfaceFile(t *testing.T) {
	i := varlinktest.Interface{
		Name: Interface, Description: varlink.BrokerDescription(), File: "wire.go", Parameters: ErrorParameters{},
		Methods: map[string]varlinktest.Types{
			GetCredential: {GetCredentialParameters{}, GetCredentialReply{}},
			Forget:        {ForgetParameters{}, Empty{}},
			GetStatus:     {Empty{}, GetStatusReply{}},
			GetMetrics:    {Empty{}, GetMetricsReply{}},
		},
		Constants: []string{ModeProxy, ModeCertificate, ModeToken},
	}
	for _, kind := range Kinds() {
		i.Errors = append(i.Errors, ErrorName(kind))
		if got, ok := KindOf(ErrorName(kind)); !ok || got != kind {
			t.Errorf("KindOf(%s): got %s, %v", ErrorName(kind), got, ok)
		}
	}
	varlinktest.Check(t, i)
}

func TestErrorsCross(t *testing.T) {
	for _, kind := range Kinds() {
		want := &keys.Error{Kind: kind, Message: "a fact", Hint: "a step", RetryAfter: 1500 * time.Millisecond}
		got, ok := ToError(FromError(want))
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", kind, got, ok, want)
		}
	}
	name, parameters := FromError(errors.New("secret"))
	if want := (ErrorParameters{Message: "internal error", Hint: "the broker's log has the cause"}); name != Interface+".Internal" || parameters != want {
		t.Errorf("an error of no kind: got %s %+v", name, parameters)
	}
	if _, ok := ToError("io.holdfast.Agent.Denied", ErrorParameters{}); ok {
		t.Error("an error of the agent's became one of ours")
	}
}
