package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"syscall"
	"time"

	"holdfast/client"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
)

// A Class says where on the way to an API server a request failed.
type Class string

// The classes of [Error].
const (
	Agent   Class = "agent"   // the agent cannot be reached
	Key     Class = "key"     // the agent does not sign
	TLS     Class = "tls"     // server and broker do not trust or understand each other
	Network Class = "network" // the server cannot be reached, or the connection was lost
	Timeout Class = "timeout" // no answer in time
)

// Error says why a request did not reach its API server. Fault tells the user; its
// cause is what failed: a [*client.UnreachableError] for Agent, the agent's own
// [*fault.Error] for Key, the context's error when the request was canceled.
type Error struct {
	Class Class
	Fault *fault.Error
}

// Error returns the message of the fault.
func (e *Error) Error() string { return e.Fault.Message }

// Unwrap returns the fault.
func (e *Error) Unwrap() error { return e.Fault }

func failure(class Class, hint, format string, args ...any) *Error {
	return &Error{class, &fault.Error{Kind: brokerwire.Upstream, Message: fmt.Sprintf(format, args...), Hint: hint}}
}

// AsFault returns the first [fault.Error] in err's chain, and one of kind
// [brokerwire.AgentUnreachable] for an agent that cannot be reached. A next step
// that leaves the profile open, as those of package client do, gets this one.
func AsFault(err error, profile string) (*fault.Error, bool) {
	var unreachable *client.UnreachableError
	e, ok := fault.AsError(err)
	switch {
	case ok && (e.Next.Do == fault.Enroll || e.Next.Do == fault.EnrollNew) && e.Next.Profile == "" && profile != "":
		named := *e
		named.Next.Profile, named.Hint = profile, ""
		return &named, true
	case ok:
		return e, true
	case errors.As(err, &unreachable):
		return &fault.Error{Kind: brokerwire.AgentUnreachable, Message: unreachable.Reason, Hint: unreachable.Hint, Err: err}, true
	}
	return nil, false
}

// Locked names the key in an error of kind [fault.PINRequired], and how to unlock it.
// It returns other errors as they are.
func Locked(err error, key string) error {
	e, ok := fault.AsError(err)
	if !ok || e.Kind != fault.PINRequired {
		return err
	}
	locked := *e
	if locked.Next.Do == "" {
		locked.Next = fault.Next{Do: fault.Unlock}
	}
	if locked.Next.Do == fault.Unlock {
		locked.Next.Key = cmp.Or(locked.Next.Key, key)
	}
	locked.Message = fmt.Sprintf("key %s is locked: %s", cmp.Or(locked.Next.Key, key), e.Message)
	return &locked
}

// explain turns what failed into an [*Error].
func (p *pool) explain(err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	for _, f := range []func(error) *Error{p.ofAgent, p.ofProxy, p.ofServer, p.ofAlert, p.ofNetwork} {
		if e := f(err); e != nil {
			e.Fault.Err = err
			return e
		}
	}
	e := failure(Network, "try again; holdfast doctor looks closer", "the connection to %s failed: %v", p.target.address, err)
	e.Fault.Err = err
	return e
}

// ofAgent explains the agent's answer, or that it gave none.
func (p *pool) ofAgent(err error) *Error {
	answer, ok := AsFault(Locked(err, p.id.key), p.id.profile)
	if !ok {
		return nil
	}
	e := *answer
	class := Key
	switch {
	case e.Kind == brokerwire.AgentUnreachable:
		class = Agent
	case e.Kind == fault.Deadline:
		class = Timeout
	}
	if class != Agent && e.Advice() == "" {
		e.Hint = "holdfast status shows the state of the key and its device"
	}
	return &Error{class, &e}
}

// ofProxy explains a failure of the profile's proxy-url.
func (p *pool) ofProxy(err error) *Error {
	var untrusted *proxyError
	var op *net.OpError
	if errors.As(err, &untrusted) {
		return failure(TLS, "its certificate has to be from the system's authorities or the profile's",
			"the proxy %s cannot be trusted: %v", p.target.proxy.Host, untrusted.err)
	}
	if errors.As(err, &op) && op.Op == "proxyconnect" {
		return failure(Network, "is the profile's proxy-url right, and the network there?",
			"the proxy %s cannot be reached: %v", p.target.proxy.Host, op.Err)
	}
	return nil
}

// ofServer explains a server whose certificate is not accepted.
func (p *pool) ofServer(err error) *Error {
	var verification *tls.CertificateVerificationError
	if !errors.As(err, &verification) || len(verification.UnverifiedCertificates) == 0 {
		return nil
	}
	at, leaf := p.target.address, verification.UnverifiedCertificates[0]
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return failure(TLS, fmt.Sprintf("if that server is right, set tls-server-name in profile %s to one of its names", p.id.profile),
			"the server at %s presented a certificate for %s, and %s was expected", at, nameList(leaf), p.target.serverName)
	case errors.As(err, &authority):
		return failure(TLS, fmt.Sprintf("another server may be in between; if the cluster has a new CA, holdfast kubeconfig add --profile %s takes it over", p.id.profile),
			"the server at %s presented a certificate issued by %q, and the profile trusts %s", at, issuer(verification.UnverifiedCertificates), p.trusted())
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return failure(TLS, "is this machine's clock right? If it is, the cluster's certificate has to be renewed",
			"the certificate of the server at %s is valid from %s to %s", at, leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return failure(TLS, "the cluster's administrator has to look at it", "the certificate of the server at %s cannot be trusted: %v", at, verification.Err)
}

func nameList(c *x509.Certificate) string {
	if names := presented(c); len(names) > 0 {
		return fmt.Sprintf("%.200s", strings.Join(names, ", "))
	}
	return "no name"
}

// issuer returns the name at the top of the chain that a server presented.
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

// The alerts that a server sends about a client's certificate (RFC 8446, section 6.2).
const (
	alertBadCertificate         tls.AlertError = 42
	alertUnsupportedCertificate tls.AlertError = 43
	alertCertificateRevoked     tls.AlertError = 44
	alertCertificateExpired     tls.AlertError = 45
	alertCertificateUnknown     tls.AlertError = 46
	alertUnknownCA              tls.AlertError = 48
	alertAccessDenied           tls.AlertError = 49
	alertProtocolVersion        tls.AlertError = 70
	alertCertificateRequired    tls.AlertError = 116
)

// alertOf returns the alert with which the server ended the handshake. Outside QUIC
// crypto/tls wraps it in a type of its own, a byte, which it does not export.
func alertOf(err error) (tls.AlertError, bool) {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return 0, false
	}
	alert := reflect.ValueOf(op.Err)
	if alert.Kind() != reflect.Uint8 {
		return 0, false
	}
	return tls.AlertError(alert.Uint()), true
}

// ofAlert explains a server that ended the handshake with an alert.
func (p *pool) ofAlert(err error) *Error {
	alert, ok := alertOf(err)
	if !ok {
		return nil
	}
	at, key, profile := p.target.address, p.id.key, p.id.profile
	enroll := fault.Next{Do: fault.Enroll, Profile: profile}
	hint := ""
	switch alert {
	case alertCertificateExpired, alertCertificateRevoked:
		hint = fmt.Sprintf("holdfast certificate renew %s, or %s", profile, enroll)
	case alertUnknownCA, alertBadCertificate, alertCertificateUnknown, alertUnsupportedCertificate, alertAccessDenied, alertCertificateRequired:
		hint = fmt.Sprintf("check that it is this cluster's: holdfast certificate show %s shows its issuer; %s gets one from the cluster", key, enroll)
	case alertProtocolVersion:
		return failure(TLS, "holdfast key create --tls12 makes a key for older servers",
			"the server at %s does not speak TLS 1.3, and key %s signs nothing older", at, key)
	default:
		return failure(TLS, "its log says why", "the server at %s ended the handshake: %v", at, alert)
	}
	e := failure(TLS, hint, "the server at %s refused the certificate of key %s: %v", at, key, alert)
	e.Fault.Next = enroll
	return e
}

// ofNetwork explains a failure of the network, or of the server's end of it.
func (p *pool) ofNetwork(err error) *Error {
	var dns *net.DNSError
	var refused *refusedError
	var timeout interface{ Timeout() bool }
	var record tls.RecordHeaderError
	at := p.target.address
	switch {
	case errors.Is(err, context.Canceled):
		return failure(Network, "try again", "the request was canceled")
	case errors.As(err, &dns) && !dns.IsTimeout:
		return failure(Network, "is the network there, or the VPN?", "the name %.100s cannot be resolved", dns.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return failure(Network, "is the API server running, and the profile's server right?", "nothing listens on %s", at)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return failure(Timeout, "is the network there, or the VPN?", "%s gave no answer in time", at)
	case errors.As(err, &record):
		return failure(TLS, "is the profile's server right?", "the server at %s does not speak TLS", at)
	case errors.As(err, &refused):
		return failure(TLS, fmt.Sprintf("it may not take the certificate of key %s; its log says why", p.id.key),
			"the server at %s closed the connection right after the handshake", at)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return failure(Network, "try again", "the connection to %s was lost before the answer", at)
	}
	return nil
}
