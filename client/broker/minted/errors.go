package minted

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"holdfast/client"
	"holdfast/client/broker/upstream"
	"holdfast/client/exchange/kubernetes"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
)

// until returns the failure as it is at a moment before the next try.
func until(failed *fault.Error, now, retry time.Time) *fault.Error {
	e := *failed
	e.RetryAfter = max(retry.Sub(now), time.Millisecond)
	return &e
}

// transient reports whether a failure may pass by itself within moments: agent or
// cluster could not be reached, or the cluster is busy.
func transient(err error) bool {
	var agent *client.UnreachableError
	var sent *upstream.Error
	var status *kubernetes.StatusError
	switch {
	case errors.As(err, &agent):
		return true
	case errors.As(err, &sent):
		return sent.Class == upstream.Network || sent.Class == upstream.Timeout
	case errors.As(err, &status):
		return status.Code == http.StatusServiceUnavailable || status.Code == http.StatusTooManyRequests
	}
	return false
}

// clockError is a credential that is not valid at the time when it is issued.
type clockError struct{ message string }

func (e *clockError) Error() string { return e.message }

// explain turns a failure into what the caller sees.
func explain(err error, p *profile.Profile, mode string) *fault.Error {
	if known, ok := upstream.AsFault(err, p.Name); ok {
		e := *known
		e.Err = err
		return &e
	}
	e := &fault.Error{Kind: brokerwire.Upstream, Message: err.Error(), Hint: "try again; the broker's log has more", Err: err}
	var clock *clockError
	var status *kubernetes.StatusError
	switch {
	case errors.As(err, &clock):
		e.Hint = "the clocks of this machine and of the cluster differ: timedatectl shows this one's"
	case errors.As(err, &status):
		explainStatus(e, status, p, mode)
	case errors.Is(err, errRefusedAgain):
		e.Message = fmt.Sprintf("the cluster of profile %s refuses the credentials that it issues", p.Name)
		e.Hint = "is the service account still there, and the audience right? The API server's log says why"
	default:
		explainRequest(e, err)
	}
	return e
}

// explainStatus explains an answer of the API server.
func explainStatus(e *fault.Error, s *kubernetes.StatusError, p *profile.Profile, mode string) {
	e.RetryAfter = s.After
	switch {
	case s.Code == http.StatusUnauthorized:
		e.Message = fmt.Sprintf("the cluster does not know the certificate of key %s", p.Key)
		e.Hint, e.Next = "", fault.Next{Do: fault.Enroll, Profile: p.Name}
	case s.Code == http.StatusForbidden && mode == brokerwire.ModeToken:
		e.Hint = fmt.Sprintf("the user of key %s needs the verb create on serviceaccounts/token in namespace %s", p.Key, p.Token.Namespace)
	case s.Code == http.StatusForbidden:
		e.Hint = fmt.Sprintf("the user of key %s needs the verbs create, get and watch on certificatesigningrequests", p.Key)
	case s.Code == http.StatusNotFound:
		e.Hint = fmt.Sprintf("is there a service account %s in namespace %s?", p.Token.ServiceAccount, p.Token.Namespace)
	case s.Code >= http.StatusInternalServerError, s.Code == http.StatusTooManyRequests:
		e.Hint = "the API server is busy or starting; try again"
	}
}

// explainRequest explains the end of a certificate request.
func explainRequest(e *fault.Error, err error) {
	var decided *kubernetes.DecisionError
	var pending *kubernetes.PendingError
	var unfit *kubernetes.CertificateError
	if errors.Is(err, context.DeadlineExceeded) {
		e.Kind = fault.Deadline
	}
	switch {
	case errors.As(err, &decided):
		e.Hint = "the approver and the signer say why; mode proxy needs neither"
	case errors.As(err, &pending) && !pending.Approved:
		e.Hint = "a node's is approved when it may create certificatesigningrequests/selfnodeclient; others wait for: kubectl certificate approve " + pending.Name
	case errors.As(err, &pending):
		e.Hint = "does its signer run? For kubernetes.io ones that is kube-controller-manager"
	case errors.As(err, &unfit):
		if e.Hint = unfit.Hint; e.Hint == "" {
			e.Hint = "the signer is to blame; its log says more"
		}
	case errors.Is(err, context.DeadlineExceeded):
		e.Message, e.Hint = "the cluster did not issue a credential in time", "is the network there, or the VPN?"
	}
}
