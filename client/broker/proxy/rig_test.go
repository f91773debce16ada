package proxy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/client/broker/ticket"
	"holdfast/client/profile"
	"holdfast/internal/metrics"
	"holdfast/internal/peer"
	"holdfast/test/role"
)

// A rig is a proxy before a cluster that a handler plays, and what it needs. The
// test's process is the one that the tickets are for.
type rig struct {
	t        testing.TB
	proxy    *Proxy
	tickets  *ticket.Table
	pools    *pools
	metrics  *metrics.Registry
	log      *buffer
	address  string // of the shared listener
	ca       []byte
	base     string      // path of the profiles' servers
	denied   atomic.Bool // by policy
	unknown  atomic.Bool // profile
	socket   *net.UnixListener
	path     string // of socket
	shutdown sync.Once
}

// buffer is a log.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// pools sends what it gets to one server, over TLS.
type pools struct {
	server  string
	both    *http.Transport
	http1   *http.Transport
	mu      sync.Mutex
	callers []ticket.Process
	retired int
	fail    error
}

func (p *pools) Transport(caller ticket.Process, prof *profile.Profile) http.RoundTripper {
	return &sender{p, p.both, caller}
}

func (p *pools) Upgrade(caller ticket.Process, prof *profile.Profile) http.RoundTripper {
	return &sender{p, p.http1, caller}
}

func (p *pools) Retire(string, *uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired++
}

type sender struct {
	pools     *pools
	transport *http.Transport
	caller    ticket.Process
}

func (s *sender) RoundTrip(r *http.Request) (*http.Response, error) {
	s.pools.mu.Lock()
	s.pools.callers = append(s.pools.callers, s.caller)
	err := s.pools.fail
	s.pools.mu.Unlock()
	if err != nil {
		return nil, err
	}
	own := *r
	u := *r.URL
	u.Host = s.pools.server
	own.URL = &u
	return s.transport.RoundTrip(&own)
}

// newPools trusts an httptest server.
func newPools(server string, certificate []byte) *pools {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	config := &tls.Config{RootCAs: roots, ServerName: "example.com"}
	return &pools{
		server: server,
		both:   &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true, HTTP2: &http.HTTP2Config{MaxReadFrameSize: 256 << 10, MaxReceiveBufferPerStream: 1 << 20, MaxReceiveBufferPerConnection: 2 << 20}},
		http1:  &http.Transport{TLSClientConfig: config.Clone(), DisableCompression: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}},
	}
}

func (p *pools) close() {
	p.both.CloseIdleConnections()
	p.http1.CloseIdleConnections()
}

// cluster starts an API server.
func cluster(t testing.TB, handler http.HandlerFunc) (*httptest.Server, []byte) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func newRig(t testing.TB, handler http.HandlerFunc) *rig {
	t.Helper()
	server, certificate := cluster(t, handler)
	r := &rig{t: t, pools: newPools(server.Listener.Addr().String(), certificate), metrics: metrics.New(), log: &buffer{}}
	t.Cleanup(r.pools.close)
	r.tickets = ticket.New(ticket.Options{})
	t.Cleanup(r.tickets.Close)
	own, ca := identity()
	r.ca = ca
	r.proxy = New(Options{
		Certificate: own, Tickets: r.tickets, Pools: r.pools, Metrics: r.metrics,
		Profile: r.profile,
		Allowed: func(ticket.Process, string) bool { return !r.denied.Load() },
		Log:     slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	t.Cleanup(func() { r.stop(0) })
	r.address = r.serve("")
	r.socket, r.path = role.Listen(t)
	return r
}

func (r *rig) profile(name string) (*profile.Profile, bool) {
	p := &profile.Profile{Name: name, Cluster: profile.Cluster{Server: "https://cluster.example:6443" + r.base}}
	return p, !r.unknown.Load()
}

// serve adds a listener.
func (r *rig) serve(profile string) string {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.proxy.Serve(l, profile) }()
	r.t.Cleanup(func() {
		r.stop(0)
		if err := <-ended; err != nil {
			r.t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// stop shuts the proxy down, once.
func (r *rig) stop(wait time.Duration) {
	r.shutdown.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		r.proxy.Shutdown(ctx)
	})
}

// identity makes a certificate like the broker's.
func identity() (tls.Certificate, []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"*." + profile.Domain}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// ticket returns a ticket for this process, got by running a plugin.
func (r *rig) ticket(profile string) string {
	r.t.Helper()
	plugin := start(r.t, "plugin", r.path)
	err := issueTo(r.socket, func(p *peer.Peer) (string, error) {
		got, err := r.tickets.Issue(p, profile)
		return got.Token, err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	token, err := io.ReadAll(plugin.Out)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(token)
}

// config is a client's TLS configuration for a profile.
func (r *rig) config(profile string) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.ca)
	c := &tls.Config{RootCAs: roots}
	if profile != "" {
		c.ServerName = profile + ".holdfast.internal"
	}
	return c
}

// client returns a client whose connections name a profile.
func (r *rig) client(profile string, http2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: r.config(profile), ForceAttemptHTTP2: http2, DisableCompression: true}
	if !http2 {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// answer is a response that was read to its end.
type answer struct {
	code   int
	header http.Header
	body   string
	proto  int
}

// message returns the message of a Status object, and fails when it is none.
func (a answer) message(t testing.TB) string {
	t.Helper()
	var s struct {
		Kind, APIVersion, Status, Message, Reason string
		Code                                      int
	}
	if err := json.Unmarshal([]byte(a.body), &s); err != nil {
		t.Fatalf("got %q, want a Status: %v", a.body, err)
	}
	if s.Kind != "Status" || s.APIVersion != "v1" || s.Status != "Failure" || s.Code != a.code || s.Reason == "" {
		t.Errorf("got %+v with code %d, want a Status", s, a.code)
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("got Content-Type %q", got)
	}
	return s.Message
}

// do sends a request, with headers given as name and value in turn.
func (r *rig) do(client *http.Client, method, path string, body io.Reader, headers ...string) answer {
	r.t.Helper()
	request, err := http.NewRequest(method, "https://"+r.address+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	return r.send(client, request)
}

func (r *rig) send(client *http.Client, request *http.Request) answer {
	r.t.Helper()
	response, err := client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(body), response.ProtoMajor}
}

// want checks the code and what the message says.
func (a answer) want(t testing.TB, code int, words ...string) {
	t.Helper()
	if a.code != code {
		t.Errorf("got %d %s, want %d", a.code, a.body, code)
		return
	}
	if len(words) == 0 {
		return
	}
	message := a.message(t)
	for _, w := range append(words, "holdfast: ") {
		if !strings.Contains(message, w) {
			t.Errorf("got the message %q, want %q in it", message, w)
		}
	}
}

// count returns the value of a metric's sample, by its labels.
func (r *rig) count(name string, labels ...string) float64 {
	for _, m := range r.metrics.Snapshot() {
		for _, s := range m.Samples {
			if m.Name == name && strings.Join(s.Labels, " ") == strings.Join(labels, " ") {
				return s.Value + float64(s.Count)
			}
		}
	}
	return 0
}

// dial opens a connection that speaks HTTP/1.1.
func (r *rig) dial(profile string) *tls.Conn {
	r.t.Helper()
	conn, err := tls.Dial("tcp", r.address, r.config(profile))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	return conn
}
