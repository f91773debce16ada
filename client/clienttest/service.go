package clienttest

import (
	"slices"
	"strings"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/message"
	"holdfast/internal/varlink"
)

// PIN unlocks every key of the stand-in.
const PIN = "2468"

func (a *Agent) service() *varlink.Service {
	methods := map[string]varlink.Method{
		agentwire.ListKeys:               handle(a, a.list),
		agentwire.GetKey:                 handle(a, func(p agentwire.NameParameters) (agentwire.KeyReply, error) { return reply(a.find(p.Name)) }),
		agentwire.CreateKey:              handle(a, func(p agentwire.CreateKeyParameters) (agentwire.KeyReply, error) { return reply(a.create(p)) }),
		agentwire.DeleteKey:              handle(a, a.remove),
		agentwire.ExportKey:              handle(a, a.export),
		agentwire.AdoptKey:               handle(a, a.adopt),
		agentwire.BindKey:                handle(a, a.bind),
		agentwire.InstallCertificate:     handle(a, a.install),
		agentwire.SignTLSClient:          handle(a, a.signTLSClient),
		agentwire.SignTLSServer:          handle(a, a.signTLSServer),
		agentwire.SignCertificateRequest: handle(a, a.signRequest),
		agentwire.UnlockKey:              handle(a, a.unlock),
		agentwire.LockKeys:               handle(a, func(agentwire.LockKeysParameters) (agentwire.Empty, error) { return agentwire.Empty{}, nil }),
		agentwire.Seal:                   handle(a, a.seal),
		agentwire.Unseal:                 handle(a, a.unseal),
		agentwire.DeleteSealed:           handle(a, a.deleteSealed),
		agentwire.ListCards:              handle(a, a.listCards),
		agentwire.SetUpCard:              handle(a, a.setUpCard),
		agentwire.ChangeCardPIN:          handle(a, func(p agentwire.ChangeCardParameters) (agentwire.Empty, error) { return a.changeCard(p, CardPIN) }),
		agentwire.ChangeCardPUK:          handle(a, func(p agentwire.ChangeCardParameters) (agentwire.Empty, error) { return a.changeCard(p, CardPUK) }),
		agentwire.UnblockCard:            handle(a, a.unblockCard),
		agentwire.GetMetrics: handle(a, func(agentwire.Empty) (agentwire.GetMetricsReply, error) {
			return agentwire.GetMetricsReply{Metrics: a.Metrics.Snapshot()}, nil
		}),
		agentwire.GetStatus:   handle(a, func(agentwire.Empty) (agentwire.GetStatusReply, error) { return a.Status, nil }),
		agentwire.CheckPolicy: handle(a, func(agentwire.CheckPolicyParameters) (agentwire.CheckPolicyReply, error) { return a.Policy, nil }),
		agentwire.TailAudit: handle(a, func(agentwire.TailAuditParameters) (agentwire.TailAuditReply, error) {
			return agentwire.TailAuditReply{Records: a.Records}, nil
		}),
		agentwire.VerifyAudit: handle(a, func(agentwire.Empty) (agentwire.VerifyAuditReply, error) {
			return agentwire.VerifyAuditReply{Records: len(a.Records), Head: "00"}, nil
		}),
		agentwire.Watch: a.watch,
	}
	in := varlink.Interface{Name: agentwire.Interface, Description: agentwire.Description(), Methods: map[string]varlink.Method{}}
	for name, method := range methods {
		in.Methods[strings.TrimPrefix(name, agentwire.Interface+".")] = method
	}
	return &varlink.Service{Vendor: "holdfast", Product: "clienttest", Version: "test", Interfaces: []varlink.Interface{in}}
}

func reply(k *key, err error) (agentwire.KeyReply, error) {
	if err != nil {
		return agentwire.KeyReply{}, err
	}
	return agentwire.KeyReply{Key: k.Key}, nil
}

func (a *Agent) list(agentwire.ListKeysParameters) (agentwire.ListKeysReply, error) {
	r := agentwire.ListKeysReply{Keys: []agentwire.Key{}}
	for _, k := range a.keys {
		r.Keys = append(r.Keys, k.Key)
	}
	slices.SortFunc(r.Keys, func(x, y agentwire.Key) int { return strings.Compare(x.Name, y.Name) })
	return r, nil
}

func (a *Agent) remove(p agentwire.NameParameters) (agentwire.Empty, error) {
	_, err := a.find(p.Name)
	delete(a.keys, p.Name)
	return agentwire.Empty{}, err
}

func (a *Agent) export(p agentwire.NameParameters) (agentwire.ExportKeyReply, error) {
	_, err := a.find(p.Name)
	return agentwire.ExportKeyReply{File: "-----BEGIN TSS2 PRIVATE KEY-----\n-----END TSS2 PRIVATE KEY-----\n"}, err
}

func (a *Agent) adopt(p agentwire.AdoptKeyParameters) (agentwire.KeyReply, error) {
	if len(p.PIN) > 0 && string(p.PIN) != CardPIN {
		return agentwire.KeyReply{}, errWrongPIN
	}
	k, err := a.create(agentwire.CreateKeyParameters{Name: p.Name, Purpose: p.Purpose, RequestID: p.RequestID})
	if err == nil {
		k.Imported, k.Confirm = p.AllowImported, p.Confirm
	}
	return reply(k, err)
}

func (a *Agent) bind(p agentwire.BindKeyParameters) (agentwire.KeyReply, error) {
	k, err := a.find(p.Name)
	if err == nil {
		k.Servers = p.Servers
	}
	return reply(k, err)
}

func (a *Agent) install(p agentwire.InstallCertificateParameters) (agentwire.KeyReply, error) {
	k, err := a.find(p.Name)
	if err == nil && len(p.PIN) > 0 && string(p.PIN) != CardPIN {
		err = errWrongPIN
	}
	if err == nil {
		k.Chain = p.Chain
	}
	return reply(k, err)
}

func (a *Agent) signTLSClient(p agentwire.SignTLSClientParameters) (agentwire.SignReply, error) {
	in := agentwire.SignParameters{Key: p.Key, Scheme: p.Scheme, Message: p.Message}
	return a.sign(in, keys.TLSClient, message.TLS13Client, message.TLS12Client)
}

func (a *Agent) signTLSServer(p agentwire.SignParameters) (agentwire.SignReply, error) {
	return a.sign(p, keys.TLSServer, message.TLS13Server, message.TLS12Server)
}

func (a *Agent) signRequest(p agentwire.SignParameters) (agentwire.SignReply, error) {
	return a.sign(p, "", message.CSR)
}

func (a *Agent) unlock(p agentwire.UnlockKeyParameters) (agentwire.UnlockKeyReply, error) {
	if _, err := a.find(p.Name); err != nil {
		return agentwire.UnlockKeyReply{}, err
	}
	if asked := len(p.PIN) == 0; asked && !a.Person {
		return agentwire.UnlockKeyReply{}, &fault.Error{Kind: fault.PINRequired, Message: "no prompt for the PIN can be shown", Next: fault.Next{Do: fault.Unlock}}
	} else if !asked && string(p.PIN) != PIN {
		return agentwire.UnlockKeyReply{}, errWrongPIN
	}
	return agentwire.UnlockKeyReply{UnlockedUntil: time.Now().Add(15 * time.Minute).UTC()}, nil
}
