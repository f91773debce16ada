package brokerwire_test

import (
	"testing"

	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
	"holdfast/internal/varlink/varlinktest"
)

// Whatever the interface file has must be here.
func TestInterfaceFile(t *testing.T) {
	i := varlinktest.Interface{
		Name: brokerwire.Interface, Description: brokerwire.Description(), File: "wire.go", Parameters: fault.Parameters{},
		Methods: map[string]varlinktest.Types{
			brokerwire.GetCredential: {brokerwire.GetCredentialParameters{}, brokerwire.GetCredentialReply{}},
			brokerwire.Forget:        {brokerwire.ForgetParameters{}, brokerwire.Empty{}},
			brokerwire.GetStatus:     {brokerwire.Empty{}, brokerwire.GetStatusReply{}},
			brokerwire.GetMetrics:    {brokerwire.Empty{}, brokerwire.GetMetricsReply{}},
		},
		Constants: []string{brokerwire.ModeProxy, brokerwire.ModeCertificate, brokerwire.ModeToken, brokerwire.Placeholder},
	}
	for _, kind := range brokerwire.Kinds() {
		i.Errors = append(i.Errors, brokerwire.Errors().ErrorName(kind))
		if got, ok := brokerwire.Errors().KindOf(brokerwire.Errors().ErrorName(kind)); !ok || got != kind {
			t.Errorf("KindOf(%s): got %s, %v", brokerwire.Errors().ErrorName(kind), got, ok)
		}
	}
	varlinktest.Check(t, i)
}
