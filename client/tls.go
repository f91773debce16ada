package client

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"time"

	"holdfast/internal/keys"
)

// chainAge is how long a configured [tls.Config] uses a fetched chain before it asks
// the agent again, so that a busy server does not ask for each connection.
const chainAge = time.Second

// TLSCertificate returns the key with its certificate chain in the form that
// tls.Config takes. The chain is the one that the key had when it was fetched; a
// program that runs for long uses [Key.ConfigureClient] or [Key.ConfigureServer]
// instead. A key without a chain is a not-found [*Error].
func (k *Key) TLSCertificate() (tls.Certificate, error) {
	if len(k.info.Chain) == 0 {
		return tls.Certificate{}, &Error{
			Kind:    NotFound,
			Message: fmt.Sprintf("key %s has no certificate", k.info.Name),
			Hint:    fmt.Sprintf("holdfast certificate request %s --subject CN=…, then holdfast certificate install %s FILE", k.info.Name, k.info.Name),
		}
	}
	leaf, err := x509.ParseCertificate(k.info.Chain[0])
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate of key %s: %w", k.info.Name, err)
	}
	if own, ok := k.public.(interface{ Equal(crypto.PublicKey) bool }); !ok || !own.Equal(leaf.PublicKey) {
		return tls.Certificate{}, &Error{Kind: KeyMismatch, Message: fmt.Sprintf("the certificate of key %s is for another key", k.info.Name)}
	}
	return tls.Certificate{
		Certificate:                  k.info.Chain,
		PrivateKey:                   k,
		Leaf:                         leaf,
		SupportedSignatureAlgorithms: []tls.SignatureScheme{k.tlsScheme()},
	}, nil
}

func (k *Key) tlsScheme() tls.SignatureScheme {
	switch k.scheme {
	case keys.ECDSAP384SHA384:
		return tls.ECDSAWithP384AndSHA384
	case keys.RSAPSSSHA256:
		return tls.PSSWithSHA256
	}
	return tls.ECDSAWithP256AndSHA256
}

// ConfigureClient makes a TLS client with cfg present the key's certificate. The
// chain is fetched when a connection is made, so that a renewed one is used within
// a second; a signature is cancelled when its handshake is.
//
// It replaces the certificates in cfg, and raises cfg.MinVersion to TLS 1.3, or to
// TLS 1.2 when the key may sign that. It leaves everything else as it is. A key of
// another purpose than tls-client is a wrong-purpose [*Error].
func (k *Key) ConfigureClient(cfg *tls.Config) error {
	s, err := k.configure(cfg, keys.TLSClient)
	if err == nil {
		cfg.GetClientCertificate = s.client
	}
	return err
}

// ConfigureServer is [Key.ConfigureClient] for a TLS server, and for keys whose
// purpose is tls-server.
func (k *Key) ConfigureServer(cfg *tls.Config) error {
	s, err := k.configure(cfg, keys.TLSServer)
	if err == nil {
		cfg.GetCertificate = s.server
	}
	return err
}

// configure sets what both sides need, and returns the source of the certificate.
func (k *Key) configure(cfg *tls.Config, purpose keys.Purpose) (*source, error) {
	if k.info.Purpose != string(purpose) {
		return nil, &Error{
			Kind:    WrongPurpose,
			Message: fmt.Sprintf("key %s is for %s, not for %s", k.info.Name, k.info.Purpose, purpose),
			Hint:    fmt.Sprintf("make a key with --purpose %s", purpose),
		}
	}
	cfg.Certificates = nil
	cfg.MinVersion = max(cfg.MinVersion, k.minVersion())
	return &source{key: k, fetched: time.Now()}, nil
}

func (k *Key) minVersion() uint16 {
	if k.info.TLS12 {
		return tls.VersionTLS12
	}
	return tls.VersionTLS13
}

// A source returns the certificate of one key, and fetches it again when it is older
// than chainAge.
type source struct {
	mu      sync.Mutex
	key     *Key
	fetched time.Time
}

func (s *source) client(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return s.certificate(r.Context(), r.SignatureSchemes)
}

func (s *source) server(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.certificate(h.Context(), h.SignatureSchemes)
}

// certificate returns the certificate for one handshake. Its errors name the missing
// signature algorithm, which those of crypto/tls do not.
func (s *source) certificate(ctx context.Context, accepted []tls.SignatureScheme) (*tls.Certificate, error) {
	if ctx == nil { // a handshake outside crypto/tls
		ctx = context.Background()
	}
	k, err := s.fresh(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(accepted, k.tlsScheme()) {
		return nil, &Error{
			Kind:    Unsupported,
			Message: fmt.Sprintf("the other side does not accept %s signatures, the only kind that key %s makes", k.scheme, k.info.Name),
			Hint:    "use a key with another algorithm",
		}
	}
	cert, err := k.WithContext(ctx).TLSCertificate()
	return &cert, err
}

func (s *source) fresh(ctx context.Context) (*Key, error) {
	s.mu.Lock()
	k, age := s.key, time.Since(s.fetched)
	s.mu.Unlock()
	if age < chainAge {
		return k, nil
	}
	now := time.Now()
	k, err := k.client.Key(ctx, k.info.Name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k.timeout, k.signed = s.key.timeout, s.key.signed
	s.key, s.fetched = k, now
	return k, nil
}

// CertificateRequest returns a PKCS #10 certificate request for the key, in DER,
// signed by it (RFC 2986). The template's signature algorithm is set to the
// key's own; see x509.CreateCertificateRequest for the members that are used.
func (k *Key) CertificateRequest(template *x509.CertificateRequest) ([]byte, error) {
	t := *template
	switch k.scheme {
	case keys.ECDSAP384SHA384:
		t.SignatureAlgorithm = x509.ECDSAWithSHA384
	case keys.RSAPSSSHA256:
		t.SignatureAlgorithm = x509.SHA256WithRSAPSS
	default:
		t.SignatureAlgorithm = x509.ECDSAWithSHA256
	}
	return x509.CreateCertificateRequest(nil, &t, k)
}
