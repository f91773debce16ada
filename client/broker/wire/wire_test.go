package wire_test

import (
	"testing"

	"holdfast/client/broker/fault"
	"holdfast/client/broker/wire"
	"holdfast/client/varlink"
	"holdfast/client/varlink/varlinktest"
)

// Whatever the interface file has must be here.
func TestInterfaceFile(t *testing.T) {
	i := varlinktest.Interface{
		Name: wire.Interface, Description: varlink.BrokerDescription(), File: "wire.go", Parameters: fault.Parameters{},
		Methods: map[string]varlinktest.Types{
			wire.GetCredential: {wire.GetCredentialParameters{}, wire.GetCredentialReply{}},
			wire.Forget:        {wire.ForgetParameters{}, wire.Empty{}},
			wire.GetStatus:     {wire.Empty{}, wire.GetStatusReply{}},
			wire.GetMetrics:    {wire.Empty{}, wire.GetMetricsReply{}},
		},
		Constants: []string{wire.ModeProxy, wire.ModeCertificate, wire.ModeToken},
	}
	for _, kind := range fault.Kinds() {
		i.Errors = append(i.Errors, fault.Name(kind))
		if got, ok := fault.KindOf(fault.Name(kind)); !ok || got != kind {
			t.Errorf("KindOf(%s): got %s, %v", fault.Name(kind), got, ok)
		}
	}
	varlinktest.Check(t, i)
}
