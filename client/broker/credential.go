package broker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"holdfast/client/broker/minted"
	"holdfast/client/broker/ticket"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
	"holdfast/internal/peer"
	"holdfast/internal/varlink"
)

// ticketMargin is how long before its end a ticket is presented as expired: a tenth
// of its lifetime.
const ticketMargin = time.Minute

// waitingInterval is how often a caller with `more` gets a report of what the broker
// waits for.
const waitingInterval = time.Second

// getCredential answers one run of the plugin.
func (b *Broker) getCredential(ctx context.Context, call *varlink.Call) error {
	var p brokerwire.GetCredentialParameters
	if err := call.Decode(&p); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.Limits.Request)
	defer cancel()
	defer context.AfterFunc(b.calls, cancel)()
	r := &request{broker: b, caller: peerOf(ctx), parameters: p, progress: make(chan string)}
	credential, err := r.answer(ctx, call)
	if err != nil && b.calls.Err() != nil {
		err = errEnding()
	}
	b.counts.answer(exitCode(err), p.Mode)
	if err != nil {
		return toFault(err, p.Profile)
	}
	return call.Reply(brokerwire.GetCredentialReply{Credential: &credential})
}

// request is one call of GetCredential.
type request struct {
	broker     *Broker
	caller     *peer.Peer
	parameters brokerwire.GetCredentialParameters
	progress   chan string // reports of what the broker waits for now, to be sent at once
}

// answer obtains the credential. A caller that accepts more than one reply gets reports
// of what the broker waits for meanwhile.
func (r *request) answer(ctx context.Context, call *varlink.Call) (brokerwire.Credential, error) {
	type result struct {
		credential brokerwire.Credential
		err        error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan result, 1)
	go func() {
		c, err := r.credential(ctx)
		done <- result{c, err}
	}()
	pulse := time.NewTicker(waitingInterval)
	defer pulse.Stop()
	known := ""
	for {
		reported := known
		select {
		case got := <-done:
			return got.credential, got.err
		case known = <-r.progress:
			reported = known
		case <-pulse.C:
			if reported == "" {
				reported = r.waiting()
			}
		}
		if !call.More() {
			continue
		}
		if err := call.Continue(brokerwire.GetCredentialReply{Waiting: reported}); err != nil {
			return brokerwire.Credential{}, errors.Join(context.Canceled, err)
		}
	}
}

// say reports to the caller at once what the broker waits for now, and returns when the
// report was taken or the caller has left.
func (r *request) say(ctx context.Context, what string) {
	select {
	case r.progress <- what:
	case <-ctx.Done():
	}
}

// waiting returns what the broker waits for.
func (r *request) waiting() string {
	if p, ok := r.broker.profiles.get(r.parameters.Profile); ok {
		if key := r.broker.watch.touches.of(p.Key); key != "" {
			return "a touch of the device, for key " + key
		}
	}
	switch p := r.parameters; p.Mode {
	case brokerwire.ModeCertificate:
		return fmt.Sprintf("a certificate for profile %s: the request may need approval, `kubectl get csr` shows it", p.Profile)
	case brokerwire.ModeToken:
		return "a token for profile " + p.Profile
	}
	return "the agent, for profile " + r.parameters.Profile
}

// credential asks the policy, obtains the credential, and checks that the caller still
// lives and may still have it.
func (r *request) credential(ctx context.Context) (brokerwire.Credential, error) {
	if err := stillThere(r.caller); err != nil {
		return brokerwire.Credential{}, err
	}
	prof, err := r.profile()
	if err != nil {
		return brokerwire.Credential{}, err
	}
	obtain := r.minted
	if r.parameters.Mode == brokerwire.ModeProxy {
		obtain = r.ticket
	}
	c, err := obtain(ctx, prof)
	if err != nil {
		return brokerwire.Credential{}, err
	}
	if err := r.still(prof); err != nil {
		return brokerwire.Credential{}, err
	}
	r.broker.counts.given(r.caller.UID, prof.Name, r.parameters.Mode, c)
	return c, nil
}

// still asks the policy once more when there is a credential. The caller may have waited
// a minute for it: the process may have ended, and policy or profile may have changed.
func (r *request) still(before *profile.Profile) error {
	if err := stillThere(r.caller); err != nil {
		return err
	}
	now, err := r.profile()
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(before, now) {
		return &fault.Error{Kind: fault.Busy, Message: fmt.Sprintf("profile %s was changed at this moment", before.Name), Hint: "try again"}
	}
	return nil
}

// profile returns the requested profile, if policy lets the caller have its credential
// in this mode, and the profile has the mode.
func (r *request) profile() (*profile.Profile, error) {
	b, p := r.broker, r.parameters
	op := operation(p.Mode)
	if op == "" {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("there is no mode %.40q", p.Mode), Hint: "the modes are proxy, certificate and token"}
	}
	prof, ok := b.profiles.get(p.Profile)
	flaw := b.profiles.fault(p.Profile)
	if !b.decide(r.caller.Identity, op, p.Profile) || !ok && flaw == nil {
		return nil, denied(r.caller, p.Profile)
	}
	if !ok {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("profile %s cannot be used: %v", p.Profile, flaw), Hint: fixFile}
	}
	if !slices.Contains(prof.Modes, p.Mode) {
		return nil, &fault.Error{
			Kind:    fault.Denied,
			Message: fmt.Sprintf("profile %s is not for mode %s", p.Profile, p.Mode),
			Hint:    "its modes are " + strings.Join(prof.Modes, ", ") + "; `modes:` in its file names them",
		}
	}
	return prof, nil
}

// ticket issues a ticket for the proxy to the caller's parent.
func (r *request) ticket(ctx context.Context, prof *profile.Profile) (brokerwire.Credential, error) {
	b := r.broker
	if err := r.ready(ctx, prof); err != nil {
		return brokerwire.Credential{}, err
	}
	issued, err := b.issued.tickets.Issue(r.caller, prof.Name)
	if err != nil {
		return brokerwire.Credential{}, err
	}
	b.identities.put(issued.Process, r.caller.Identity, issued.Expires, b.issued.tickets.Lives)
	return brokerwire.Credential{Token: issued.Token, ExpirationTimestamp: issued.Expires.Add(-ticketMargin)}, nil
}

// minted obtains a certificate or a token.
func (r *request) minted(ctx context.Context, prof *profile.Profile) (brokerwire.Credential, error) {
	if err := r.broker.watch.keys.mayShare(prof); err != nil {
		return brokerwire.Credential{}, err
	}
	holder, err := ticket.Parent(r.caller)
	if err != nil {
		return brokerwire.Credential{}, err
	}
	if err := r.ready(ctx, prof); err != nil {
		return brokerwire.Credential{}, err
	}
	return r.broker.issued.mint.Credential(ctx, minted.Request{
		Holder: holder, Profile: prof, Mode: r.parameters.Mode,
		Cluster: r.parameters.Cluster, Unauthorized: r.parameters.Unauthorized,
	})
}
