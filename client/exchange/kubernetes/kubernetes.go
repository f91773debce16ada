// Package kubernetes exchanges a way to sign in to an API server for a
// credential: a certificate through the CertificateSigningRequest API, a token
// through TokenRequest. It asks for what it is told to and checks what it gets.
//
// Start at [Client]. How to sign in is the caller's: package signin makes
// transports from what kubeconfigs hold.
//
// It protects no credential that it returns, and trusts the server that the
// transport has verified to say who may have what.
package kubernetes

import (
	"context"
	"net/http"
	"time"
)

// Client is one API server and a way to sign in to it. It is safe for concurrent
// use. It follows no redirects. A request that the server refuses for the moment
// (429, or 5xx with Retry-After; RFC 9110, section 10.2.3) is made again when
// the server says, while the request's context allows it.
type Client struct {
	Server string            // https://HOST[:PORT][/PATH]
	HTTP   http.RoundTripper // signs in: a client certificate, or a header that it adds

	// pause waits for d or until ctx ends; tests make it short.
	pause func(ctx context.Context, d time.Duration) error
}

// CertificateRequest says what certificate to ask for.
type CertificateRequest struct {
	CSR        []byte        // PKCS #10, DER
	SignerName string        // kubernetes.io/kube-apiserver-client and the like
	Usages     []string      // "client auth", "digital signature" when empty
	Lifetime   time.Duration // at least 10 minutes; the signer's own when 0
	Name       string        // the beginning of the object's name; "holdfast-" when empty

	// Once, when not empty, is the whole name of the object. One of that name that
	// asks for the same is waited for, and no other is made, so that a program that
	// was interrupted, or that a timer runs again, does not ask twice.
	Once string

	// Created, when not nil, is called with the object's name once it is made, so
	// that a person can be told whom to ask for approval. Found is, when the object
	// of the name Once is there already.
	Created, Found func(name string)
}

// TokenRequest says what token to ask for.
type TokenRequest struct {
	Namespace      string
	ServiceAccount string
	Audiences      []string      // the API server's own when empty
	Lifetime       time.Duration // at least 10 minutes; the server's own when 0
}

// Token is a bearer token.
type Token struct {
	Token   string
	Expires time.Time // as the server said, which may be earlier or later than asked for
}

// User is whom an API server takes the client for.
type User struct {
	Username string
	UID      string
	Groups   []string
}

// minLifetime is the shortest that the API server lets anybody ask for, of
// certificates and of tokens alike.
const minLifetime = 10 * time.Minute
