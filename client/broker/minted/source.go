package minted

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"holdfast/client"
	"holdfast/client/broker/ticket"
	"holdfast/client/broker/upstream"
	"holdfast/client/exchange/kubernetes"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
)

// source obtains credentials. Tests of the cache use another one.
type source interface {
	obtain(ctx context.Context, holder ticket.Process, p *profile.Profile, mode string) (*credential, error)
	probe(ctx context.Context, p *profile.Profile, c *credential) (verdict string)
}

// The verdicts of a probe.
const (
	verdictAccepted = "accepted"
	verdictRefused  = "refused"
	verdictUnknown  = "unknown" // the cluster was not reached, or answered something else
)

// credential is what a cluster issued.
type credential struct {
	wire    brokerwire.Credential
	from    time.Time        // when it begins to be valid; zero when it does not say
	expires time.Time        // its true end
	pair    *tls.Certificate // of mode certificate, to sign in with
}

// skew is the difference of the clocks of cluster and broker that is tolerated: the
// beginning of a token is rounded to seconds, and set by another machine.
const skew = 5 * time.Second

// check rejects a credential that is not valid now, or only just: the clocks differ.
func (c *credential) check(now time.Time) error {
	switch {
	case c.from.After(now.Add(skew)):
		return &clockError{fmt.Sprintf("the cluster issued a credential that is valid from %s only, and here it is %s", stamp(c.from), stamp(now))}
	case !c.stop(now).After(now):
		return &clockError{fmt.Sprintf("the cluster issued a credential that ends on %s, and here it is %s", stamp(c.expires), stamp(now))}
	}
	return nil
}

// stop is when the credential is not handed out any more, in whole seconds.
func (c *credential) stop(now time.Time) time.Time {
	return c.expires.Add(-margin(c.expires.Sub(now))).Truncate(time.Second)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// cluster obtains credentials from API servers, signing in with the profile's key.
type cluster struct {
	agent *client.Client
	pools *upstream.Pools
}

var _ source = (*cluster)(nil)

// minLifetime is the shortest that Kubernetes issues.
const minLifetime = 10 * time.Minute

func (c *cluster) obtain(ctx context.Context, holder ticket.Process, p *profile.Profile, mode string) (*credential, error) {
	api := &kubernetes.Client{Server: p.Cluster.Server, HTTP: c.pools.Transport(holder, p)}
	if mode == brokerwire.ModeToken {
		return token(ctx, api, p)
	}
	return c.certificate(ctx, api, p)
}

func token(ctx context.Context, api *kubernetes.Client, p *profile.Profile) (*credential, error) {
	if p.Token.Namespace == "" || p.Token.ServiceAccount == "" {
		return nil, &fault.Error{
			Kind:    fault.Unsupported,
			Message: fmt.Sprintf("profile %s names no service account for mode token", p.Name),
			Hint:    "token: {namespace: …, service-account: …} in the profile's file",
		}
	}
	t, err := api.RequestToken(ctx, kubernetes.TokenRequest{
		Namespace: p.Token.Namespace, ServiceAccount: p.Token.ServiceAccount,
		Audiences: p.Token.Audiences, Lifetime: max(p.Token.Lifetime, minLifetime),
	})
	if err != nil {
		return nil, err
	}
	return &credential{wire: brokerwire.Credential{Token: t.Token}, from: notBefore(t.Token), expires: t.Expires}, nil
}

// certificate creates a key and requests a certificate for it, with the subject of the
// hardware key's certificate.
func (c *cluster) certificate(ctx context.Context, api *kubernetes.Client, p *profile.Profile) (*credential, error) {
	key, err := c.agent.Current(ctx, p.Key)
	if err != nil {
		return nil, err
	}
	own, err := key.TLSCertificate()
	if err != nil {
		return nil, err
	}
	request, err := requestFor(own.Leaf.Subject, p)
	if err != nil {
		return nil, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: own.Leaf.Subject.CommonName, Organization: own.Leaf.Subject.Organization}}
	if request.CSR, err = x509.CreateCertificateRequest(rand.Reader, template, private); err != nil {
		return nil, err
	}
	chain, err := api.RequestCertificate(ctx, request)
	if err != nil {
		return nil, err
	}
	return pair(chain, private)
}

// The lifetimes of certificates when the profile says nothing: a node's watches
// are cut whenever its certificate changes.
const (
	nodeLifetime   = 24 * time.Hour
	personLifetime = minLifetime
)

const (
	nodeSigner = "kubernetes.io/kube-apiserver-client-kubelet"
	nodesGroup = "system:nodes"
)

// requestFor returns the request for a subject, or why no signer would issue it.
func requestFor(subject pkix.Name, p *profile.Profile) (kubernetes.CertificateRequest, error) {
	node := profile.Node(subject.CommonName)
	r := kubernetes.CertificateRequest{
		SignerName: p.Certificate.SignerName, Lifetime: p.Certificate.Lifetime,
	}
	if r.SignerName == "" && node {
		r.SignerName = nodeSigner
	}
	if r.Lifetime == 0 {
		r.Lifetime = map[bool]time.Duration{true: nodeLifetime, false: personLifetime}[node]
	}
	r.Lifetime = max(r.Lifetime, minLifetime)
	switch {
	case r.SignerName == "":
		return r, &fault.Error{
			Kind:    fault.Unsupported,
			Message: fmt.Sprintf("no cluster approves certificate requests of %.100q by itself: that is for nodes only, and profile %s names no signer", subject.CommonName, p.Name),
			Hint:    "use mode proxy; to let users approve requests would let them mint any identity. Where the cluster has a signer with an approver of its own, name it in the profile: certificate: {signer-name: …}",
		}
	case r.SignerName == nodeSigner && (!node || !slices.Equal(subject.Organization, []string{nodesGroup})):
		return r, &fault.Error{
			Kind:    fault.Unsupported,
			Message: fmt.Sprintf("%s issues for CN system:node:NAME with O %s alone, and the certificate of key %s is for %.200q", nodeSigner, nodesGroup, p.Key, subject.String()),
			Hint:    "holdfast enroll kubernetes " + p.Name + " --subject CN=system:node:NAME,O=" + nodesGroup,
		}
	}
	return r, nil
}

// pair returns the credential of mode certificate.
func pair(chain [][]byte, private *ecdsa.PrivateKey) (*credential, error) {
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	var text []byte
	for _, each := range chain {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: each})...)
	}
	return &credential{
		wire: brokerwire.Credential{ClientCertificateData: string(text), ClientKeyData: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))},
		from: leaf.NotBefore, expires: leaf.NotAfter,
		pair: &tls.Certificate{Certificate: chain, PrivateKey: private, Leaf: leaf},
	}, nil
}

// probe signs in with the credential, over a connection of its own.
func (c *cluster) probe(ctx context.Context, p *profile.Profile, held *credential) string {
	direct, err := upstream.Direct(p, held.pair)
	if err != nil {
		return verdictUnknown
	}
	defer direct.CloseIdleConnections()
	api := &kubernetes.Client{Server: p.Cluster.Server, HTTP: &bearer{direct, held.wire.Token}}
	_, err = api.WhoAmI(ctx)
	var status *kubernetes.StatusError
	switch {
	case err == nil:
		return verdictAccepted
	case errors.As(err, &status) && status.Code == http.StatusUnauthorized:
		return verdictRefused
	case errors.As(err, &status) && status.Code == http.StatusForbidden:
		return verdictAccepted // it authenticated the user
	}
	return verdictUnknown
}

// bearer adds a token to requests, when there is one.
type bearer struct {
	over  http.RoundTripper
	token string
}

// RoundTrip implements [http.RoundTripper].
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.over.RoundTrip(r)
}
