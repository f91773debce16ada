package clienttest

import (
	"bytes"
	"fmt"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// A sealed is a secret that the stand-in keeps.
type sealed struct {
	secret    []byte
	requestID string
}

// seal keeps a secret as the agent would, but in memory.
func (a *Agent) seal(p agentwire.SealParameters) (agentwire.Empty, error) {
	if err := keys.CheckName(p.Name); err != nil {
		return agentwire.Empty{}, err
	}
	if err := keys.CheckSecret(p.Secret); err != nil {
		return agentwire.Empty{}, err
	}
	old, taken := a.sealed[p.Name]
	if taken && p.RequestID != "" && p.RequestID == old.requestID {
		return agentwire.Empty{}, nil
	}
	if taken && !p.Replace {
		return agentwire.Empty{}, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("sealed secret %q already exists", p.Name)}
	}
	if a.sealed == nil {
		a.sealed = map[string]sealed{}
	}
	a.sealed[p.Name] = sealed{secret: bytes.Clone(p.Secret), requestID: p.RequestID}
	return agentwire.Empty{}, nil
}

func (a *Agent) unseal(p agentwire.NameParameters) (agentwire.UnsealReply, error) {
	s, ok := a.sealed[p.Name]
	if !ok {
		return agentwire.UnsealReply{}, noSealed(p.Name)
	}
	return agentwire.UnsealReply{Secret: s.secret}, nil
}

func (a *Agent) deleteSealed(p agentwire.NameParameters) (agentwire.Empty, error) {
	if _, ok := a.sealed[p.Name]; !ok {
		return agentwire.Empty{}, noSealed(p.Name)
	}
	delete(a.sealed, p.Name)
	return agentwire.Empty{}, nil
}

func noSealed(name string) error {
	return &fault.Error{Kind: fault.Denied, Message: fmt.Sprintf("there is no sealed secret %q that you may use", name)}
}
