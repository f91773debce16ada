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

// Error says why a credential was not obtained: one fact and one hint. RetryAfter
// is when the next try is made at the earliest; callers before that get the same
// error. Err is the cause: in its chain there is a [*client.UnreachableError] when
// the agent cannot be reached, and a [*fault.Error] when the agent refuses.
type Error struct {
	Message    string
	Hint       string
	RetryAfter time.Duration
	Err        error
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// until returns the error as it is at a moment before the next try.
func (e *Error) until(now, retry time.Time) *Error {
	as := *e
	as.RetryAfter = max(retry.Sub(now), time.Millisecond)
	return &as
}

// passing reports whether the failure may pass by itself within moments: somebody
// could not be reached, or said that he cannot answer now.
func (e *Error) passing() bool {
	var agent *client.UnreachableError
	var sent *upstream.Error
	var status *kubernetes.StatusError
	switch {
	case errors.As(e.Err, &agent):
		return true
	case errors.As(e.Err, &sent):
		return sent.Kind == "network" || sent.Kind == "timeout"
	case errors.As(e.Err, &status):
		return status.Code == http.StatusServiceUnavailable || status.Code == http.StatusTooManyRequests
	}
	return false
}

// clockError is a credential that is not valid at the time when it is issued.
type clockError struct{ message string }

func (e *clockError) Error() string { return e.message }

// explain turns what went wrong into an [*Error].
func explain(err error, p *profile.Profile, mode string) *Error {
	e := &Error{Err: err, Message: err.Error(), Hint: "try again; the broker's log has more"}
	var unreachable *client.UnreachableError
	var sent *upstream.Error
	var clock *clockError
	var status *kubernetes.StatusError
	answer, isAnswer := fault.AsError(err)
	switch {
	case errors.As(err, &unreachable):
		e.Message, e.Hint = unreachable.Reason, unreachable.Hint
	case errors.As(err, &sent):
		e.Message, e.Hint = sent.Message, sent.Hint
	case isAnswer:
		e.Message, e.Hint, e.RetryAfter = answer.Message, answer.Hint, answer.RetryAfter
	case errors.As(err, &clock):
		e.Hint = "the clocks of this machine and of the cluster differ: timedatectl shows this one's"
	case errors.As(err, &status):
		e.ofStatus(status, p, mode)
	case errors.Is(err, errRefusedAgain):
		e.Message = fmt.Sprintf("the cluster of profile %s refuses the credentials that it issues", p.Name)
		e.Hint = "is the service account still there, and the audience right? The API server's log says why"
	default:
		e.ofRequest(err)
	}
	return e
}

// ofStatus explains an answer of the API server.
func (e *Error) ofStatus(s *kubernetes.StatusError, p *profile.Profile, mode string) {
	e.RetryAfter = s.After
	switch {
	case s.Code == http.StatusUnauthorized:
		e.Message = fmt.Sprintf("the cluster does not know the certificate of key %s", p.Key)
		e.Hint = "holdfast enroll kubernetes " + p.Name + " gets another"
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

// ofRequest explains what became of a certificate request.
func (e *Error) ofRequest(err error) {
	var decided *kubernetes.DecisionError
	var pending *kubernetes.PendingError
	var unfit *kubernetes.CertificateError
	switch {
	case errors.As(err, &decided):
		e.Hint = "whoever approves and signs for that signer says why; mode proxy needs neither"
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
