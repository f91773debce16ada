package agentwire

import (
	"reflect"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/varlink/varlinktest"
)

// Whatever the interface file has must be here.
func TestInterfaceFile(t *testing.T) {
	i := varlinktest.Interface{
		Name: Interface, Description: Description(), File: "wire.go", Parameters: fault.Parameters{},
		Methods: map[string]varlinktest.Types{
			ListKeys:               {ListKeysParameters{}, ListKeysReply{}},
			GetKey:                 {NameParameters{}, KeyReply{}},
			CreateKey:              {CreateKeyParameters{}, KeyReply{}},
			DeleteKey:              {NameParameters{}, Empty{}},
			ExportKey:              {NameParameters{}, ExportKeyReply{}},
			AdoptKey:               {AdoptKeyParameters{}, KeyReply{}},
			BindKey:                {BindKeyParameters{}, KeyReply{}},
			InstallCertificate:     {InstallCertificateParameters{}, KeyReply{}},
			SignTLSClient:          {SignTLSClientParameters{}, SignReply{}},
			SignTLSServer:          {SignParameters{}, SignReply{}},
			SignCertificateRequest: {SignParameters{}, SignReply{}},
			UnlockKey:              {UnlockKeyParameters{}, UnlockKeyReply{}},
			LockKeys:               {LockKeysParameters{}, Empty{}},
			Seal:                   {SealParameters{}, Empty{}},
			Unseal:                 {NameParameters{}, UnsealReply{}},
			DeleteSealed:           {NameParameters{}, Empty{}},
			ListCards:              {Empty{}, ListCardsReply{}},
			SetUpCard:              {SetUpCardParameters{}, Empty{}},
			ChangeCardPIN:          {ChangeCardParameters{}, Empty{}},
			ChangeCardPUK:          {ChangeCardParameters{}, Empty{}},
			UnblockCard:            {UnblockCardParameters{}, Empty{}},
			GetMetrics:             {Empty{}, GetMetricsReply{}},
			GetStatus:              {Empty{}, GetStatusReply{}},
			CheckPolicy:            {CheckPolicyParameters{}, CheckPolicyReply{}},
			TailAudit:              {TailAuditParameters{}, TailAuditReply{}},
			VerifyAudit:            {Empty{}, VerifyAuditReply{}},
			Watch:                  {Empty{}, WatchReply{}},
		},
	}
	for _, kind := range fault.Kinds() {
		i.Errors = append(i.Errors, Errors().ErrorName(kind))
		if got, ok := Errors().KindOf(Errors().ErrorName(kind)); !ok || got != kind {
			t.Errorf("KindOf(%s): got %s, %v", Errors().ErrorName(kind), got, ok)
		}
	}
	varlinktest.Check(t, i)
	if _, ok := Errors().KindOf(Interface + ".Newer"); ok {
		t.Error("an error that nobody knows has a kind")
	}
}

func TestErrorsCross(t *testing.T) {
	for _, kind := range fault.Kinds() {
		want := &fault.Error{Kind: kind, Message: "a fact", Hint: "a step", RetryAfter: 1500 * time.Millisecond}
		got, ok := Errors().ToError(Errors().FromError(want))
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", kind, got, ok, want)
		}
	}
	name, parameters := Errors().FromError(errTest("secret"))
	if want := (fault.Parameters{Message: "internal error", Hint: "the agent's log has the cause"}); name != Interface+".Internal" || parameters != want {
		t.Errorf("an error of no kind: got %s %+v", name, parameters)
	}
	if _, ok := Errors().ToError("org.varlink.service.MethodNotFound", fault.Parameters{}); ok {
		t.Error("an error of another interface became one of ours")
	}
}

type errTest string

func (e errTest) Error() string { return string(e) }
