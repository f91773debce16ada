// Package kubernetes exchanges a way to sign in to an API server for a
// credential: a certificate through the CertificateSigningRequest API, a token
// through TokenRequest. It asks for what it is told to and checks what it gets.
//
// Start at [Client].
package kubernetes

import (
	"context"
	"net/http"
	"time"
)

// Client is one API server and a way to sign in to it.
type Client struct {
	Server string            // https://HOST[:PORT][/PATH]
	HTTP   http.RoundTripper // signs in: a client certificate, or a header that it adds
}

// CertificateRequest says what certificate to ask for.
type CertificateRequest struct {
	CSR        []byte        // PKCS #10, DER
	SignerName string        // kubernetes.io/kube-apiserver-client and the like
	Usages     []string      // "client auth", "digital signature" when empty
	Lifetime   time.Duration // at least 10 minutes; the signer's own when 0
	Name       string        // the beginning of the object's name; "holdfast-" when empty

	// Created, when not nil, is called with the object's name once it is made, so
	// that a person can be told whom to ask for approval.
	Created func(name string)
}

// RequestCertificate makes a CertificateSigningRequest, waits for its certificate
// until ctx ends, and returns the chain, DER, leaf first. It is an error when the
// request is denied or fails, and when the certificate is not for the request's
// key and subject or not valid now.
func (c *Client) RequestCertificate(ctx context.Context, r CertificateRequest) ([][]byte, error) {
	panic("not built")
}

// TokenRequest says what token to ask for.
type TokenRequest struct {
	Namespace      string
	ServiceAccount string
	Audiences      []string      // the API server's own when empty
	Lifetime       time.Duration // at least 10 minutes
}

// Token is a bearer token.
type Token struct {
	Token   string
	Expires time.Time
}

// RequestToken asks for a token of a service account.
func (c *Client) RequestToken(ctx context.Context, r TokenRequest) (Token, error) {
	panic("not built")
}

// User is whom an API server takes the client for.
type User struct {
	Username string
	UID      string
	Groups   []string
}

// WhoAmI makes a SelfSubjectReview. A [*StatusError] with code 401 means that the
// server does not take the credential.
func (c *Client) WhoAmI(ctx context.Context) (User, error) { panic("not built") }

// StatusError is a Kubernetes Status that says why a request failed.
type StatusError struct {
	Code    int
	Reason  string
	Message string
	After   time.Duration // the server's Retry-After, when it gave one
}

// Error returns the server's message, made fit for a terminal.
func (e *StatusError) Error() string { return e.Message }
