// Package apiserver is a stand-in for kube-apiserver and its signers, as much as
// enrolment, renewal and tokens meet: it knows its users by client certificate,
// bearer token or password, keeps CertificateSigningRequests, and issues
// certificates with a CA of its own. Start at [Start].
//
// It is no judge of what a real API server does; package kube runs real ones.
package apiserver

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// TB is as much of testing.TB as the package needs.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// User is a user whom the server knows.
type User struct {
	Username string   `json:"username"`
	UID      string   `json:"uid,omitempty"`
	Groups   []string `json:"groups,omitempty"`
}

// The decisions about a certificate signing request.
const (
	Issue   = "issue"   // approved, and its certificate issued
	Hold    = "hold"    // nothing, until [Server.Decide]
	Approve = "approve" // approved, and no certificate issued
	Deny    = "deny"
	Fail    = "fail"
)

// Conduct is how the server behaves.
type Conduct struct {
	Decision string        // on new requests; Issue when empty
	Message  string        // of the decision
	Lifetime time.Duration // of certificates, whatever was asked for; as asked for when 0
	Skew     time.Duration // of the signer's clock
	NoWatch  bool          // watches are forbidden
	Revoked  bool          // client certificates sign in nobody
	Subject  *pkix.Name    // of certificates, whatever was asked for
	Key      crypto.PublicKey
	Usage    []x509.ExtKeyUsage // clientAuth when empty
	Refuse   int                // the next so many requests are refused with 429
	Down     int                // the next so many requests are refused with 503
}

// Server is a running stand-in. It ends with the test.
type Server struct {
	URL string
	CA  []byte // PEM: issues the server's certificate and those of its clients

	tb          TB
	http        *httptest.Server
	certificate *x509.Certificate
	key         crypto.Signer

	mu        sync.Mutex
	conduct   Conduct
	tokens    map[string]User
	passwords map[string]string
	requests  []string // METHOD PATH, and the user's name
	signing   map[string]*signingRequest
	version   int
	changed   chan struct{} // closed at each change
}

// Start starts a stand-in without users.
func Start(tb TB) *Server {
	tb.Helper()
	s := &Server{
		tb: tb, tokens: map[string]User{}, passwords: map[string]string{},
		signing: map[string]*signingRequest{}, changed: make(chan struct{}),
	}
	s.makeCA()
	s.http = httptest.NewUnstartedServer(s.handler())
	s.http.EnableHTTP2 = true
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	pool := x509.NewCertPool()
	pool.AddCert(s.certificate)
	s.http.TLS = &tls.Config{Certificates: []tls.Certificate{s.server()}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven}
	s.http.StartTLS()
	s.URL = s.http.URL
	tb.Cleanup(s.Stop)
	return s
}

// Stop closes every connection and the listener.
func (s *Server) Stop() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Change changes how the server behaves from now on.
func (s *Server) Change(change func(*Conduct)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.conduct)
}

// AddToken makes token a way for user to sign in.
func (s *Server) AddToken(token string, user User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = user
}

// AddPassword makes a password a way for a user without groups to sign in.
func (s *Server) AddPassword(username, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passwords[username] = password
}

// Requests returns what was asked, each as "METHOD PATH by USER".
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.requests...)
}

// Certificate returns a certificate of the server's CA for a client, DER.
func (s *Server) Certificate(subject pkix.Name, public crypto.PublicKey, from, until time.Time) []byte {
	s.tb.Helper()
	return s.sign(&x509.Certificate{
		Subject: subject, NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, public)
}

func (s *Server) newKey() crypto.Signer {
	s.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.tb.Fatalf("apiserver: %v", err)
	}
	return key
}

func (s *Server) makeCA() {
	s.tb.Helper()
	s.key = s.newKey()
	s.certificate = &x509.Certificate{
		Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := s.sign(s.certificate, s.key.Public())
	var err error
	if s.certificate, err = x509.ParseCertificate(der); err != nil {
		s.tb.Fatalf("apiserver: %v", err)
	}
	s.CA = encode(der)
}

func (s *Server) server() tls.Certificate {
	s.tb.Helper()
	key := s.newKey()
	der := s.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, DNSNames: []string{"localhost", "kubernetes"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, key.Public())
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (s *Server) sign(template *x509.Certificate, public crypto.PublicKey) []byte {
	s.tb.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		s.tb.Fatalf("apiserver: %v", err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, s.certificate, public, s.key)
	if err != nil {
		s.tb.Fatalf("apiserver: %v", err)
	}
	return der
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+requestsPath, s.as(s.createRequest))
	mux.HandleFunc("GET "+requestsPath, s.as(s.watchRequests))
	mux.HandleFunc("GET "+requestsPath+"/{name}", s.as(s.getRequest))
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", s.as(s.createToken))
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", s.as(s.review))
	mux.HandleFunc("/", s.as(func(w http.ResponseWriter, _ *http.Request, _ User) {
		refuse(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	}))
	return mux
}
