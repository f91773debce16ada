package kubernetes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/test/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bearer signs in by a token.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// pauses are the waits that a client asked for. None of them takes any time.
type pauses struct {
	mu   sync.Mutex
	list []time.Duration
}

func (p *pauses) pause(ctx context.Context, d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, d)
	return ctx.Err()
}

func (p *pauses) all() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Duration{}, p.list...)
}

const bootstrapToken = "abcdef.0123456789abcdef"

// start returns a server, a client that it knows as system:bootstrap:abcdef, and
// the pauses that the client makes.
func start(t *testing.T) (*apiserver.Server, *Client, *pauses) {
	t.Helper()
	server := apiserver.Start(t)
	server.AddToken(bootstrapToken, apiserver.User{Username: "system:bootstrap:abcdef", UID: "7", Groups: []string{"system:bootstrappers"}})
	waits := &pauses{}
	return server, &Client{Server: server.URL, HTTP: bearer{bootstrapToken, transport(t, server)}, pause: waits.pause}, waits
}

func transport(t *testing.T, server *apiserver.Server) *http.Transport {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(server.CA)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// request makes a certificate request, DER, and its key.
func request(t testing.TB, subject pkix.Name) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

func alice() pkix.Name {
	return pkix.Name{CommonName: "alice", Organization: []string{"ops", "dev"}}
}

// soon is a context for what must not take long.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// wantError fails the test unless err says all of the texts.
func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("got no error, want %q", texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got %q, want it to say %q", err, text)
		}
	}
	if strings.Contains(err.Error(), bootstrapToken) {
		t.Errorf("the token is in the error %q", err)
	}
}
