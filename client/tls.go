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

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// chainAge is how long [Key.ConfigureTLS] goes on with what it knows of a key
// before it asks the agent again, so that busy servers do not ask each time.
const chainAge = time.Second

// TLSCertificate returns the key with its certificate chain, in the form that
// tls.Config takes. It is the chain of the moment when the key was fetched; see
// [Key.ConfigureTLS]. A key without a chain is a not-found [*fault.Error].
func (k *Key) TLSCertificate() (tls.Certificate, error) {
	if len(k.info.Chain) == 0 {
		return tls.Certificate{}, &fault.Error{
			Kind:    fault.NotFound,
			Message: fmt.Sprintf("key %s has no certificate", k.info.Name),
			Hint:    fmt.Sprintf("holdfast certificate request %s --subject CN=…, then holdfast certificate install %s FILE", k.info.Name, k.info.Name),
		}
	}
	leaf, err := x509.ParseCertificate(k.info.Chain[0])
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate of key %s: %w", k.info.Name, err)
	}
	if own, ok := k.public.(interface{ Equal(crypto.PublicKey) bool }); !ok || !own.Equal(leaf.PublicKey) {
		return tls.Certificate{}, &fault.Error{Kind: fault.KeyMismatch, Message: fmt.Sprintf("the certificate of key %s is for another key", k.info.Name)}
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

// ConfigureTLS makes cfg use the key: as the certificate of the client when the
// key's purpose is tls-client, of the server when it is tls-server. The chain is
// fetched as connections are made, so that a renewed one is used within a
// second, and a signature is given up when its handshake is.
//
// It replaces the certificates in cfg. It raises cfg.MinVersion to TLS 1.3, or
// to TLS 1.2 when the key may sign that; everything else is left as it is.
func (k *Key) ConfigureTLS(cfg *tls.Config) error {
	s := &source{key: k, fetched: time.Now()}
	switch keys.Purpose(k.info.Purpose) {
	case keys.TLSClient:
		cfg.GetClientCertificate = s.client
	case keys.TLSServer:
		cfg.GetCertificate = s.server
	default:
		return &fault.Error{
			Kind:    fault.WrongPurpose,
			Message: fmt.Sprintf("key %s is for %s, not for TLS", k.info.Name, k.info.Purpose),
			Hint:    "make a key with --purpose tls-client or tls-server",
		}
	}
	cfg.Certificates = nil
	cfg.MinVersion = max(cfg.MinVersion, k.minVersion())
	return nil
}

func (k *Key) minVersion() uint16 {
	if k.info.TLS12 {
		return tls.VersionTLS12
	}
	return tls.VersionTLS13
}

// source gives out the certificate of one key, fetching it afresh.
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

// certificate returns the certificate for one handshake, or an error that says
// what the other side is missing: crypto/tls would only say that it is missing
// something.
func (s *source) certificate(ctx context.Context, accepted []tls.SignatureScheme) (*tls.Certificate, error) {
	if ctx == nil { // of a handshake that crypto/tls did not make
		ctx = context.Background()
	}
	k, err := s.fresh(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(accepted, k.tlsScheme()) {
		return nil, &fault.Error{
			Kind:    fault.Unsupported,
			Message: fmt.Sprintf("the other side does not take %s signatures, the only kind that key %s makes", k.scheme, k.info.Name),
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
	k.timeout = s.key.timeout
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
