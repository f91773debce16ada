package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"holdfast/client"
	"holdfast/internal/fault"
)

// The kinds of [Error].
const (
	kindAgent   = "agent"
	kindKey     = "key"
	kindTLS     = "tls"
	kindNetwork = "network"
	kindTimeout = "timeout"
)

// Error says why an API server could not be reached: one fact and one hint. Kind
// is agent (the agent cannot be reached), key (the agent does not sign), tls,
// network or timeout. Err is the cause, where there is one: in its chain is a
// [*client.UnreachableError] for agent, a [*fault.Error] for key, and the context's
// error when the request was given up.
type Error struct {
	Kind    string
	Message string
	Hint    string
	Err     error
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// explain turns what went wrong into an [*Error].
func (p *pool) explain(err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	for _, f := range []func(error) *Error{p.ofAgent, p.ofProxy, p.ofServer, p.ofAlert, p.ofNetwork} {
		if e := f(err); e != nil {
			e.Err = err
			return e
		}
	}
	return &Error{
		Kind: kindNetwork, Err: err,
		Message: fmt.Sprintf("the connection to %s failed: %v", p.target.address, err),
		Hint:    "try again; holdfast doctor looks closer",
	}
}

// ofAgent explains what the agent answers, or that it does not.
func (p *pool) ofAgent(err error) *Error {
	var unreachable *client.UnreachableError
	if errors.As(err, &unreachable) {
		return &Error{Kind: kindAgent, Message: unreachable.Reason, Hint: unreachable.Hint}
	}
	answer, ok := fault.AsError(err)
	if !ok {
		return nil
	}
	e := &Error{Kind: kindKey, Message: answer.Message, Hint: answer.Hint}
	if answer.Kind == fault.Deadline {
		e.Kind = kindTimeout
	}
	// The agent's hints know of keys; the person has a profile.
	e.Hint = strings.ReplaceAll(e.Hint, "holdfast enroll kubernetes PROFILE", "holdfast enroll kubernetes "+p.id.profile)
	if e.Hint == "" {
		e.Hint = "holdfast status shows the state of the key and its device"
	}
	return e
}

// ofProxy explains what the profile's proxy-url does.
func (p *pool) ofProxy(err error) *Error {
	var over *proxyError
	var op *net.OpError
	if errors.As(err, &over) {
		return &Error{Kind: kindTLS, Message: fmt.Sprintf("the proxy %s cannot be trusted: %v", p.target.proxy.Host, over.err), Hint: "its certificate has to be from the system's authorities or the profile's"}
	}
	if errors.As(err, &op) && op.Op == "proxyconnect" {
		return &Error{Kind: kindNetwork, Message: fmt.Sprintf("the proxy %s cannot be reached: %v", p.target.proxy.Host, op.Err), Hint: "is the profile's proxy-url right, and the network there?"}
	}
	return nil
}

// ofServer explains a server whose certificate does not do.
func (p *pool) ofServer(err error) *Error {
	var verification *tls.CertificateVerificationError
	if !errors.As(err, &verification) || len(verification.UnverifiedCertificates) == 0 {
		return nil
	}
	leaf := verification.UnverifiedCertificates[0]
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	e := &Error{Kind: kindTLS}
	switch {
	case errors.As(err, &name):
		e.Message = fmt.Sprintf("the server at %s presented a certificate for %s, and %s was expected", p.target.address, nameList(leaf), p.target.serverName)
		e.Hint = fmt.Sprintf("if that server is right, set tls-server-name in profile %s to one of its names", p.id.profile)
	case errors.As(err, &authority):
		e.Message = fmt.Sprintf("the server at %s presented a certificate issued by %q, and the profile trusts %s", p.target.address, issuer(verification.UnverifiedCertificates), p.trusted())
		e.Hint = fmt.Sprintf("another server may be in between; if the cluster has a new CA, holdfast kubeconfig add --profile %s takes it over", p.id.profile)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		e.Message = fmt.Sprintf("the certificate of the server at %s is valid from %s to %s", p.target.address, leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339))
		e.Hint = "is this machine's clock right? If it is, the cluster's certificate has to be renewed"
	default:
		e.Message = fmt.Sprintf("the certificate of the server at %s cannot be trusted: %v", p.target.address, verification.Err)
		e.Hint = "the cluster's administrator has to look at it"
	}
	return e
}

func nameList(c *x509.Certificate) string {
	if names := presented(c); len(names) > 0 {
		return fmt.Sprintf("%.200s", strings.Join(names, ", "))
	}
	return "no name"
}

// issuer returns the name at the top of what a server presented.
func issuer(chain []*x509.Certificate) string {
	return fmt.Sprintf("%.100s", chain[len(chain)-1].Issuer.String())
}

// trusted returns the names of the authorities that the profile trusts.
func (p *pool) trusted() string {
	var names []string
	for _, c := range certificates(p.id.cluster.CertificateAuthorityData) {
		names = append(names, fmt.Sprintf("%q", c.Subject.String()))
	}
	return fmt.Sprintf("%.200s", strings.Join(names, ", "))
}

// ofAlert explains a server that ended the handshake with a TLS alert (RFC 8446,
// section 6.2).
func (p *pool) ofAlert(err error) *Error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return nil
	}
	what := strings.TrimPrefix(op.Err.Error(), "tls: ")
	e := &Error{Kind: kindTLS, Message: fmt.Sprintf("the server at %s refused the certificate of key %s: %s", p.target.address, p.id.key, what)}
	switch what {
	case "expired certificate", "revoked certificate":
		e.Hint = fmt.Sprintf("holdfast certificate renew %s, or holdfast enroll kubernetes %s", p.id.profile, p.id.profile)
	case "unknown certificate authority", "bad certificate", "unknown certificate", "unsupported certificate", "access denied", "certificate required":
		e.Hint = fmt.Sprintf("is it this cluster's? holdfast certificate show %s tells who issued it; holdfast enroll kubernetes %s gets one from the cluster", p.id.key, p.id.profile)
	case "protocol version not supported":
		e.Message = fmt.Sprintf("the server at %s does not speak TLS 1.3, and key %s signs nothing older", p.target.address, p.id.key)
		e.Hint = "holdfast key create --tls12 makes a key for older servers"
	default:
		e.Message = fmt.Sprintf("the server at %s ended the handshake: %s", p.target.address, what)
		e.Hint = "its log says why"
	}
	return e
}

// ofNetwork explains what happened on the way.
func (p *pool) ofNetwork(err error) *Error {
	var dns *net.DNSError
	var refused *refusedError
	var timeout interface{ Timeout() bool }
	var record tls.RecordHeaderError
	at := p.target.address
	switch {
	case errors.Is(err, context.Canceled):
		return &Error{Kind: kindNetwork, Message: "the request was given up", Hint: "try again"}
	case errors.As(err, &dns) && !dns.IsTimeout:
		return &Error{Kind: kindNetwork, Message: fmt.Sprintf("the name %.100s cannot be resolved", dns.Name), Hint: "is the network there, or the VPN?"}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Error{Kind: kindNetwork, Message: fmt.Sprintf("nothing listens on %s", at), Hint: "is the API server running, and the profile's server right?"}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &Error{Kind: kindTimeout, Message: fmt.Sprintf("%s gave no answer in time", at), Hint: "is the network there, or the VPN?"}
	case errors.As(err, &record):
		return &Error{Kind: kindTLS, Message: fmt.Sprintf("what listens on %s does not speak TLS", at), Hint: "is the profile's server right?"}
	case errors.As(err, &refused):
		return &Error{Kind: kindTLS, Message: fmt.Sprintf("the server at %s closed the connection right after the handshake", at), Hint: fmt.Sprintf("it may not take the certificate of key %s; its log says why", p.id.key)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return &Error{Kind: kindNetwork, Message: fmt.Sprintf("the connection to %s was lost before the answer", at), Hint: "try again"}
	}
	return nil
}
