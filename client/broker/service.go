package broker

import (
	"context"
	"errors"
	"fmt"

	"holdfast/client/broker/upstream"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
	"holdfast/internal/varlink"
)

// newService returns the varlink service with the broker's methods.
func (b *Broker) newService() *varlink.Service {
	return &varlink.Service{
		Vendor:  "holdfast",
		Product: "holdfast-broker",
		Version: b.Version,
		URL:     "https://holdfast.dev",
		OnError: b.wireError,
		Interfaces: []varlink.Interface{{
			Name:        brokerwire.Interface,
			Description: brokerwire.Description(),
			Methods: map[string]varlink.Method{
				"GetCredential": b.getCredential,
				"Forget":        handle(b.forget),
				"GetStatus":     handle(b.getStatus),
				"GetMetrics":    handle(b.getMetrics),
			},
		}},
	}
}

// handle makes a varlink method of a function that takes its parameters and returns
// its reply as values.
func handle[P, R any](do func(context.Context, *peer.Peer, *P) (*R, error)) varlink.Method {
	return func(ctx context.Context, call *varlink.Call) error {
		var p P
		if err := call.Decode(&p); err != nil {
			return err
		}
		caller := peerOf(ctx)
		if err := stillThere(caller); err != nil {
			return err
		}
		reply, err := do(ctx, caller, &p)
		if err != nil {
			return err
		}
		return call.Reply(reply)
	}
}

// stillThere rejects a caller whose process has ended: another process, which was
// not identified, may have its connection now.
func stillThere(caller *peer.Peer) error {
	if err := caller.Alive(); err != nil {
		return &fault.Error{Kind: fault.Denied, Message: "the process that connected has ended", Hint: "ask from the process that connects", Err: err}
	}
	return nil
}

// wireError turns a method's error into the error reply. The cause of an
// internal error goes to the broker's own log.
func (b *Broker) wireError(err error) (string, any) {
	known := toFault(err, "")
	if known.Kind == fault.Internal && !errors.Is(err, context.Canceled) {
		b.Log.Error("request", "error", err)
	}
	name, parameters := brokerwire.Errors().FromError(known)
	return name, parameters
}

// toFault gives an error one of the kinds that cross the wire. Its next step names
// the profile.
func toFault(err error, profile string) *fault.Error {
	if e, ok := upstream.AsFault(err, profile); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &fault.Error{Kind: fault.Deadline, Message: "the request took too long", Hint: "`holdfast status` shows what the broker and the agent wait for", Err: err}
	}
	return &fault.Error{Kind: fault.Internal, Message: "internal error", Hint: "the broker's log has the cause", Err: err}
}

// The exit codes of the plugin, as holdfast-exec-plugin(1) has them.
const (
	exitDone        = "0"
	exitFailed      = "1"
	exitUnreachable = "3"
	exitDenied      = "4"
	exitPerson      = "5"
)

// exitCode returns the code with which the plugin exits when it is answered err.
func exitCode(err error) string {
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, context.Canceled): // the plugin closed at its own timeout
		return exitUnreachable
	}
	switch toFault(err, "").Kind {
	case fault.Denied:
		return exitDenied
	case fault.PINRequired, fault.PINBlocked, fault.TouchTimeout, fault.ConfirmationRequired:
		return exitPerson
	case brokerwire.AgentUnreachable:
		return exitUnreachable
	}
	return exitFailed
}

// forget ends everything that was issued to the caller.
func (b *Broker) forget(_ context.Context, caller *peer.Peer, p *brokerwire.ForgetParameters) (*brokerwire.Empty, error) {
	profiles, _, _ := b.profiles.list()
	if _, ok := profiles[p.Profile]; p.Profile != "" && (!ok || !b.mayUse(caller.Identity, p.Profile)) {
		return nil, denied(caller, p.Profile)
	}
	for name := range profiles {
		if p.Profile != "" && name != p.Profile || !b.mayUse(caller.Identity, name) {
			continue
		}
		b.issued.forget(name, caller.UID, b.privileged(caller.Identity))
	}
	return &brokerwire.Empty{}, nil
}

// denied is the error for a profile that does not exist and for one that the caller
// may not use: the two look the same.
func denied(caller *peer.Peer, profile string) error {
	return &fault.Error{
		Kind:    fault.Denied,
		Message: fmt.Sprintf("there is no profile %.80q that uid %d may use in this way", profile, caller.UID),
		Hint:    "`holdfast status` shows the profiles that you may use; `holdfast kubeconfig add` makes one",
	}
}

// getMetrics returns the metrics to a caller that the policy lets ask for the
// broker's state. Only profiles that the caller may use appear by name.
func (b *Broker) getMetrics(_ context.Context, caller *peer.Peer, _ *brokerwire.Empty) (*brokerwire.GetMetricsReply, error) {
	if err := b.mayAsk(caller); err != nil {
		return nil, err
	}
	b.counts.lifetimes.show(b.counts.ttl)
	known := func(profile string) bool {
		return b.privileged(caller.Identity) || b.mayUse(caller.Identity, profile)
	}
	return &brokerwire.GetMetricsReply{Metrics: redactProfiles(b.registry.Snapshot(), known)}, nil
}

// mayAsk rejects a caller that the policy does not allow to see the broker's state.
func (b *Broker) mayAsk(caller *peer.Peer) error {
	if b.decide(caller.Identity, policy.Status, "") {
		return nil
	}
	return &fault.Error{
		Kind:    fault.Denied,
		Message: fmt.Sprintf("uid %d may not ask for the broker's state", caller.UID),
		Hint:    "the broker's policy has to allow status",
	}
}
