package upstream_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/client"
	"holdfast/client/broker/ticket"
	"holdfast/client/broker/upstream"
	"holdfast/client/clienttest"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
	"holdfast/internal/metrics"
	"holdfast/test/daemon"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		daemon.Remove()
		os.Exit(code)
	}))
}

// rig is a stand-in for the agent, and a server that takes its key.
type rig struct {
	agent   *clienttest.Agent
	client  *client.Client
	ca      *clienttest.CA
	server  *server
	pools   *upstream.Pools
	profile *profile.Profile
	metrics *metrics.Registry
	alone   bool // the key wants a person each time
}

func newRig(t *testing.T, change func(*server)) *rig {
	t.Helper()
	r := &rig{agent: clienttest.Start(t), ca: clienttest.NewCA(t), metrics: metrics.New()}
	var err error
	if r.client, err = client.Dial(context.Background(), &client.Options{Socket: r.agent.Socket}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.client.Close() })
	r.key(t, "alice")
	r.server = startServer(t, r.ca, change)
	r.pools = upstream.New(upstream.Options{Agent: r.client, Metrics: r.metrics, Alone: func(*profile.Profile) bool { return r.alone }})
	t.Cleanup(r.pools.Close)
	r.profile = &profile.Profile{Name: "prod", Key: "alice", Cluster: profile.Cluster{
		Server: r.server.URL, CertificateAuthorityData: string(r.ca.PEM),
	}}
	return r
}

// key makes a key with a certificate.
func (r *rig) key(t *testing.T, name string) {
	t.Helper()
	r.agent.AddKey(name, keys.TLSClient, keys.ES256)
	k, err := r.client.Key(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	chain := [][]byte{r.ca.IssueFor(name, k.Public())}
	r.agent.Change(name, func(k *agentwire.Key) { k.Chain = chain })
}

// me is this process as a caller.
func me() ticket.Process {
	return ticket.Process{UID: uint32(os.Getuid()), PID: int32(os.Getpid()), Start: 1}
}

func (r *rig) transport() http.RoundTripper { return r.pools.Transport(me(), r.profile) }

// signatures returns how many the agent made, and checks that Counts knows.
func (r *rig) signatures(t *testing.T) int {
	t.Helper()
	var n int
	eventually(t, func() string {
		n = len(r.agent.Calls(agentwire.SignTLSClient))
		if _, counted := r.pools.Counts("prod"); counted != n { // one may be under way
			return fmt.Sprintf("Counts has %d signatures, the agent made %d", counted, n)
		}
		return ""
	})
	return n
}

// connections waits until there are n.
func (r *rig) connections(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() string {
		if got, _ := r.pools.Counts("prod"); got != n {
			return fmt.Sprintf("%d connections, want %d", got, n)
		}
		return ""
	})
}

// eventually waits until what returns nothing.
func eventually(t *testing.T, what func() string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		said := what()
		if said == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(said)
		}
	}
}

// send sends a request and returns the whole answer.
func send(tr http.RoundTripper, method, path string, body io.Reader) (string, error) {
	request, err := http.NewRequest(method, "https://somewhere.invalid"+path, body)
	if err != nil {
		return "", err
	}
	return read(tr.RoundTrip(request))
}

func read(answer *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

func get(t *testing.T, tr http.RoundTripper, path string) string {
	t.Helper()
	text, err := send(tr, "GET", path, nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return text
}

// server is an API-like server: it tells who asked, watches until it is told to
// stop, and echoes over an upgraded connection.
type server struct {
	*httptest.Server
	stop chan struct{}

	mu    sync.Mutex
	conns map[net.Conn]bool
	total int
}

func startServer(t *testing.T, ca *clienttest.CA, change func(*server)) *server {
	t.Helper()
	s := &server{stop: make(chan struct{}), conns: map[net.Conn]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/who", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %q %q", r.TLS.PeerCertificates[0].Subject.CommonName, r.Proto, r.Host, r.Header.Get("Accept-Encoding"), r.URL.RawQuery)
	})
	mux.HandleFunc("/watch", s.watch)
	mux.HandleFunc("/upgrade", s.upgrade)
	s.Server = httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Server()}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = s.state
	if change != nil {
		change(s)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) state(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.total++
		s.conns[c] = true
	case http.StateClosed:
		delete(s.conns, c)
	}
}

// accepted returns how many connections there ever were.
func (s *server) accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, "event")
	w.(http.Flusher).Flush()
	select {
	case <-s.stop:
		fmt.Fprintln(w, "end")
	case <-r.Context().Done():
	}
}

func (s *server) upgrade(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" || r.ProtoMajor != 1 {
		http.Error(w, "no upgrade over "+r.Proto, http.StatusBadRequest)
		return
	}
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	for {
		if rw.Flush() != nil {
			return
		}
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = rw.WriteString(strings.ToUpper(line))
	}
}

// watching is a watch that is open.
type watching struct {
	body   io.ReadCloser
	reader *bufio.Reader
}

func watch(t *testing.T, tr http.RoundTripper) *watching {
	t.Helper()
	request, _ := http.NewRequest("GET", "https://somewhere.invalid/watch", nil)
	answer, err := tr.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	w := &watching{answer.Body, bufio.NewReader(answer.Body)}
	t.Cleanup(func() { w.body.Close() })
	w.expect(t, "event\n")
	return w
}

func (w *watching) expect(t *testing.T, want string) {
	t.Helper()
	if got, err := w.reader.ReadString('\n'); got != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

// upgraded opens an upgraded connection.
func upgraded(t *testing.T, tr http.RoundTripper) *watching {
	t.Helper()
	request, _ := http.NewRequest("POST", "https://somewhere.invalid/upgrade", nil)
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "echo")
	answer, err := tr.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := answer.Body.(io.ReadWriteCloser); !ok || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %d with a %T", answer.StatusCode, answer.Body)
	}
	w := &watching{answer.Body, bufio.NewReader(answer.Body)}
	t.Cleanup(func() { w.body.Close() })
	w.say(t, "hello")
	return w
}

func (w *watching) say(t *testing.T, what string) {
	t.Helper()
	if _, err := fmt.Fprintln(w.body.(io.Writer), what); err != nil {
		t.Fatal(err)
	}
	w.expect(t, strings.ToUpper(what)+"\n")
}
