package agent

import (
	"context"
	"errors"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/varlink"
)

// newService returns the agent's varlink service. Every method gets its request after
// the parameters were decoded strictly.
func (a *Agent) newService() *varlink.Service {
	return &varlink.Service{
		Vendor:  "holdfast",
		Product: "holdfast-agent",
		Version: a.Version,
		URL:     "https://holdfast.dev",
		OnError: a.wireError,
		Interfaces: []varlink.Interface{{
			Name:        agentwire.Interface,
			Description: agentwire.Description(),
			Methods: a.counts.counted(map[string]varlink.Method{
				"ListKeys":               handle(a, (*request).listKeys),
				"GetKey":                 handle(a, (*request).getKey),
				"CreateKey":              handle(a, (*request).createKey),
				"DeleteKey":              handle(a, (*request).deleteKey),
				"ExportKey":              handle(a, (*request).exportKey),
				"AdoptKey":               handle(a, (*request).adoptKey),
				"BindKey":                handle(a, (*request).bindKey),
				"InstallCertificate":     handle(a, (*request).installCertificate),
				"SignTLSClient":          handle(a, (*request).signTLSClient),
				"SignTLSServer":          handle(a, (*request).signTLSServer),
				"SignCertificateRequest": handle(a, (*request).signCertificateRequest),
				"UnlockKey":              handle(a, (*request).unlockKey),
				"LockKeys":               handle(a, (*request).lockKeys),
				"Seal":                   handle(a, (*request).seal),
				"Unseal":                 handle(a, (*request).unseal),
				"DeleteSealed":           handle(a, (*request).deleteSealed),
				"ListCards":              handle(a, (*request).listCards),
				"SetUpCard":              handle(a, (*request).setUpCard),
				"ChangeCardPIN":          handle(a, (*request).changeCardPIN),
				"ChangeCardPUK":          handle(a, (*request).changeCardPUK),
				"UnblockCard":            handle(a, (*request).unblockCard),
				"GetMetrics":             handle(a, (*request).getMetrics),
				"GetStatus":              handle(a, (*request).getStatus),
				"CheckPolicy":            handle(a, (*request).checkPolicy),
				"TailAudit":              handle(a, (*request).tailAudit),
				"VerifyAudit":            handle(a, (*request).verifyAudit),
				"Watch":                  a.watchCall,
			}),
		}},
	}
}

// handle returns the varlink method of a function that takes its parameters and returns
// its reply as values.
func handle[P, R any](a *Agent, do func(*request, context.Context, *P) (*R, error)) varlink.Method {
	return func(ctx context.Context, call *varlink.Call) error {
		var p P
		if err := call.Decode(&p); err != nil {
			return err
		}
		r := a.newRequest(ctx)
		if err := r.callerAlive(); err != nil {
			return r.deny(entry{op: "connect"}, err)
		}
		ctx, cancel := context.WithTimeout(ctx, a.Limits.Request)
		defer cancel()
		reply, err := do(r, ctx, &p)
		if err != nil {
			return err
		}
		defer wipe(reply)
		return call.Reply(reply)
	}
}

// wireError returns a method's error as the caller sees it. The cause of an internal
// error goes to the agent's log.
func (a *Agent) wireError(err error) (string, any) {
	e, named := fault.AsError(err)
	named = named && e.Kind != fault.Internal
	if !named && !errors.Is(err, context.Canceled) {
		a.Log.Error("request", "error", err)
	}
	if !named && errors.Is(err, context.DeadlineExceeded) { // a named error, such as that of a wedged device, says more
		err = &fault.Error{Kind: fault.Deadline, Message: "the request took too long", Hint: "`holdfast status` shows the device's state", Err: err}
	}
	name, parameters := agentwire.Errors().FromError(err)
	return name, parameters
}
