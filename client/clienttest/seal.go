package clienttest

import (
	"bytes"
	"fmt"

	"holdfast/agent/keys"
	"holdfast/agent/wire"
)

// A sealed is a secret that the stand-in keeps.
type sealed struct {
	secret    []byte
	requestID string
}

// seal keeps a secret as the agent would, but in memory.
func (a *Agent) seal(p wire.SealParameters) (wire.Empty, error) {
	if err := keys.CheckName(p.Name); err != nil {
		return wire.Empty{}, err
	}
	if err := keys.CheckSecret(p.Secret); err != nil {
		return wire.Empty{}, err
	}
	old, taken := a.sealed[p.Name]
	if taken && p.RequestID != "" && p.RequestID == old.requestID {
		return wire.Empty{}, nil
	}
	if taken && !p.Replace {
		return wire.Empty{}, &keys.Error{Kind: keys.BadRequest, Message: fmt.Sprintf("sealed secret %q already exists", p.Name)}
	}
	if a.sealed == nil {
		a.sealed = map[string]sealed{}
	}
	a.sealed[p.Name] = sealed{secret: bytes.Clone(p.Secret), requestID: p.RequestID}
	return wire.Empty{}, nil
}

func (a *Agent) unseal(p wire.NameParameters) (wire.UnsealReply, error) {
	s, ok := a.sealed[p.Name]
	if !ok {
		return wire.UnsealReply{}, noSealed(p.Name)
	}
	return wire.UnsealReply{Secret: s.secret}, nil
}

func (a *Agent) deleteSealed(p wire.NameParameters) (wire.Empty, error) {
	if _, ok := a.sealed[p.Name]; !ok {
		return wire.Empty{}, noSealed(p.Name)
	}
	delete(a.sealed, p.Name)
	return wire.Empty{}, nil
}

func noSealed(name string) error {
	return &keys.Error{Kind: keys.Denied, Message: fmt.Sprintf("there is no sealed secret %q that you may use", name)}
}
