package clienttest

import (
	"slices"
	"strings"
	"time"

	"holdfast/agent/keys"
	"holdfast/agent/message"
	"holdfast/agent/wire"
	"holdfast/client/varlink"
)

// PIN is the one that unlocks every key of the stand-in.
const PIN = "2468"

func (a *Agent) service() *varlink.Service {
	methods := map[string]varlink.Method{
		wire.ListKeys:               handle(a, a.list),
		wire.GetKey:                 handle(a, func(p wire.NameParameters) (wire.KeyReply, error) { return reply(a.find(p.Name)) }),
		wire.CreateKey:              handle(a, func(p wire.CreateKeyParameters) (wire.KeyReply, error) { return reply(a.create(p)) }),
		wire.DeleteKey:              handle(a, a.remove),
		wire.ExportKey:              handle(a, a.export),
		wire.AdoptKey:               handle(a, a.adopt),
		wire.BindKey:                handle(a, a.bind),
		wire.InstallCertificate:     handle(a, a.install),
		wire.SignTLSClient:          handle(a, a.signTLSClient),
		wire.SignTLSServer:          handle(a, a.signTLSServer),
		wire.SignCertificateRequest: handle(a, a.signRequest),
		wire.UnlockKey:              handle(a, a.unlock),
		wire.LockKeys:               handle(a, func(wire.LockKeysParameters) (wire.Empty, error) { return wire.Empty{}, nil }),
		wire.Seal:                   handle(a, a.seal),
		wire.Unseal:                 handle(a, a.unseal),
		wire.DeleteSealed:           handle(a, a.deleteSealed),
		wire.ListCards:              handle(a, a.listCards),
		wire.SetUpCard:              handle(a, a.setUpCard),
		wire.ChangeCardPIN:          handle(a, func(p wire.ChangeCardParameters) (wire.Empty, error) { return a.changeCard(p, CardPIN) }),
		wire.ChangeCardPUK:          handle(a, func(p wire.ChangeCardParameters) (wire.Empty, error) { return a.changeCard(p, CardPUK) }),
		wire.UnblockCard:            handle(a, a.unblockCard),
		wire.GetMetrics: handle(a, func(wire.Empty) (wire.GetMetricsReply, error) {
			return wire.GetMetricsReply{Metrics: a.Metrics.Snapshot()}, nil
		}),
		wire.GetStatus:   handle(a, func(wire.Empty) (wire.GetStatusReply, error) { return a.Status, nil }),
		wire.CheckPolicy: handle(a, func(wire.CheckPolicyParameters) (wire.CheckPolicyReply, error) { return a.Policy, nil }),
		wire.TailAudit: handle(a, func(wire.TailAuditParameters) (wire.TailAuditReply, error) {
			return wire.TailAuditReply{Records: a.Records}, nil
		}),
		wire.VerifyAudit: handle(a, func(wire.Empty) (wire.VerifyAuditReply, error) {
			return wire.VerifyAuditReply{Records: len(a.Records), Head: "00"}, nil
		}),
		wire.Watch: a.watch,
	}
	in := varlink.Interface{Name: wire.Interface, Description: varlink.AgentDescription(), Methods: map[string]varlink.Method{}}
	for name, method := range methods {
		in.Methods[strings.TrimPrefix(name, wire.Interface+".")] = method
	}
	return &varlink.Service{Vendor: "holdfast", Product: "clienttest", Version: "test", Interfaces: []varlink.Interface{in}}
}

func reply(k *key, err error) (wire.KeyReply, error) {
	if err != nil {
		return wire.KeyReply{}, err
	}
	return wire.KeyReply{Key: k.Key}, nil
}

func (a *Agent) list(wire.ListKeysParameters) (wire.ListKeysReply, error) {
	r := wire.ListKeysReply{Keys: []wire.Key{}}
	for _, k := range a.keys {
		r.Keys = append(r.Keys, k.Key)
	}
	slices.SortFunc(r.Keys, func(x, y wire.Key) int { return strings.Compare(x.Name, y.Name) })
	return r, nil
}

func (a *Agent) remove(p wire.NameParameters) (wire.Empty, error) {
	_, err := a.find(p.Name)
	delete(a.keys, p.Name)
	return wire.Empty{}, err
}

func (a *Agent) export(p wire.NameParameters) (wire.ExportKeyReply, error) {
	_, err := a.find(p.Name)
	return wire.ExportKeyReply{File: "-----BEGIN TSS2 PRIVATE KEY-----\n-----END TSS2 PRIVATE KEY-----\n"}, err
}

func (a *Agent) adopt(p wire.AdoptKeyParameters) (wire.KeyReply, error) {
	if len(p.PIN) > 0 && string(p.PIN) != CardPIN {
		return wire.KeyReply{}, errWrongPIN
	}
	k, err := a.create(wire.CreateKeyParameters{Name: p.Name, Purpose: p.Purpose, RequestID: p.RequestID})
	if err == nil {
		k.Imported, k.Confirm = p.AllowImported, p.Confirm
	}
	return reply(k, err)
}

func (a *Agent) bind(p wire.BindKeyParameters) (wire.KeyReply, error) {
	k, err := a.find(p.Name)
	if err == nil {
		k.Servers = p.Servers
	}
	return reply(k, err)
}

func (a *Agent) install(p wire.InstallCertificateParameters) (wire.KeyReply, error) {
	k, err := a.find(p.Name)
	if err == nil && len(p.PIN) > 0 && string(p.PIN) != CardPIN {
		err = errWrongPIN
	}
	if err == nil {
		k.Chain = p.Chain
	}
	return reply(k, err)
}

func (a *Agent) signTLSClient(p wire.SignTLSClientParameters) (wire.SignReply, error) {
	in := wire.SignParameters{Key: p.Key, Scheme: p.Scheme, Message: p.Message}
	return a.sign(in, keys.TLSClient, message.TLS13Client, message.TLS12Client)
}

func (a *Agent) signTLSServer(p wire.SignParameters) (wire.SignReply, error) {
	return a.sign(p, keys.TLSServer, message.TLS13Server, message.TLS12Server)
}

func (a *Agent) signRequest(p wire.SignParameters) (wire.SignReply, error) {
	return a.sign(p, "", message.CSR)
}

func (a *Agent) unlock(p wire.UnlockKeyParameters) (wire.UnlockKeyReply, error) {
	if _, err := a.find(p.Name); err != nil {
		return wire.UnlockKeyReply{}, err
	}
	if asked := len(p.PIN) == 0; asked && !a.Person {
		return wire.UnlockKeyReply{}, &keys.Error{Kind: keys.PINRequired, Message: "there is nobody to ask for the PIN", Hint: "holdfast unlock NAME on a terminal"}
	} else if !asked && string(p.PIN) != PIN {
		return wire.UnlockKeyReply{}, errWrongPIN
	}
	return wire.UnlockKeyReply{UnlockedUntil: time.Now().Add(15 * time.Minute).UTC()}, nil
}
