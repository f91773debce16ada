// Package kubernetes exchanges a way to sign in to an API server for a
// credential: a certificate through the CertificateSigningRequest API, a token
// through TokenRequest. It checks that a credential is the one that it
// requested.
//
// Start at [Client]. The caller brings the transport that signs in: package signin
// makes one from a kubeconfig's user.
//
// It does not protect the credentials that it returns, and trusts the server, which
// the transport has verified, to decide which credentials a user may have.
package kubernetes

import (
	"context"
	"net/http"
	"time"
)

// Client is one API server and a way to sign in to it. It is safe for concurrent
// use. It follows no redirects. It retries a request that the server rejects for the
// moment (429, or 5xx with Retry-After; RFC 9110, section 10.2.3) after the server's
// delay, while the request's context allows it.
type Client struct {
	Server string            // https://HOST[:PORT][/PATH]
	HTTP   http.RoundTripper // signs in: a client certificate, or a header that it adds

	// pause waits for d or until ctx ends; tests make it short.
	pause func(ctx context.Context, d time.Duration) error
}

// CertificateRequest describes a certificate to request.
type CertificateRequest struct {
	CSR        []byte        // PKCS #10, DER
	SignerName string        // kubernetes.io/kube-apiserver-client and the like
	Lifetime   time.Duration // at least 10 minutes; the signer's own when 0
	Name       string        // the beginning of the object's name; "holdfast-" when empty

	// Once, when not empty, is the whole name of the object. When an object of that
	// name exists and requests the same, the client waits for it instead of making
	// another, so that a program that was interrupted, or that a timer runs again,
	// does not request twice.
	Once string

	// Created, when not nil, is called with the name of the object that was made, so
	// that the user can ask for its approval. Found is called instead when the object
	// named Once exists already.
	Created, Found func(name string)
}

// TokenRequest describes a token to request.
type TokenRequest struct {
	Namespace      string
	ServiceAccount string
	Audiences      []string      // the API server's own when empty
	Lifetime       time.Duration // at least 10 minutes; the server's own when 0
}

// Token is a bearer token.
type Token struct {
	Token   string
	Expires time.Time // the server's, which may be earlier or later than requested
}

// User is the client's user as the API server sees it.
type User struct {
	Username string
	UID      string
	Groups   []string
}

// minLifetime is the shortest lifetime that the API server accepts for certificates
// and tokens.
const minLifetime = 10 * time.Minute
