package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// rig is an agent with a certified key alice, a CA, and a server.
type rig struct {
	agent  *clienttest.Agent
	ca     *clienttest.CA
	caFile string
	config *tls.Config             // of the server
	serve  func(*tls.Conn)         // what it does with a connection whose handshake worked
	ended  chan error              // what came of the server's handshake
	wrap   func(net.Conn) net.Conn // what is between the server and its socket
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{agent: clienttest.Start(t), ca: clienttest.NewCA(t), ended: make(chan error, 1)}
	r.caFile = file(t, r.ca.PEM)
	k := r.agent.AddKey("alice", keys.TLSClient, keys.ES256)
	public, err := keys.ParsePublic(k.PublicKey)
	check(t, err)
	r.agent.Change("alice", func(k *agentwire.Key) { k.Chain, k.TLS12 = [][]byte{r.ca.IssueFor("alice", public)}, true })
	r.config = &tls.Config{
		Certificates: []tls.Certificate{r.ca.Server()}, ClientCAs: r.ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	}
	r.serve = func(c *tls.Conn) { io.Copy(c, c) }
	r.wrap = func(c net.Conn) net.Conn { return c }
	return r
}

// start serves one connection and returns the server's address.
func (r *rig) start(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		raw, err := listener.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		conn := tls.Server(r.wrap(raw), r.config)
		err = conn.Handshake()
		r.ended <- err
		if err == nil {
			r.serve(conn)
			conn.Close()
		}
	}()
	return listener.Addr().String()
}

// connect runs `tls connect` with short waits.
func (r *rig) connect(t *testing.T, o connectOptions, stdin string) result {
	t.Helper()
	address := r.start(t)
	var stdout, stderr synced
	a := &app{
		streams:  streams{strings.NewReader(stdin), &stdout, &stderr, nil},
		timeouts: timeouts{verdict: 200 * time.Millisecond, quiet: 50 * time.Millisecond, closing: 300 * time.Millisecond},
		socket:   r.agent.Socket,
	}
	if o.ca == "" {
		o.ca = r.caFile
	}
	err := a.connect(context.Background(), &o, address)
	return result{a.report(err), stdout.String(), stderr.String()}
}

func asAlice() connectOptions { return connectOptions{key: "alice"} }

// wantReport is want for the report, which is on stderr also when all is well.
func wantReport(t *testing.T, r result, code int, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("got %q, want it to say %q", r.stderr, text)
		}
	}
	if r.code != code {
		t.Errorf("exit code %d, want %d: %s", r.code, code, r.stderr)
	}
}

func TestConnect(t *testing.T) {
	got := newRig(t).connect(t, asAlice(), "echo this")
	wantReport(t, got, 0, "version    TLS 1.3", "cipher     TLS_", "server     127.0.0.1, verified", "chain 0    CN=localhost",
		"chain 1    CN=test CA", "client     CN=alice, with key alice (ES256)", "signature  ", " ms\n", "accepted: it sent a session ticket")
	if got.stdout != "echo this" {
		t.Errorf("got %q from the server", got.stdout)
	}
}

func TestConnectTLS12(t *testing.T) {
	r := newRig(t)
	r.config.MaxVersion = tls.VersionTLS12
	wantReport(t, r.connect(t, asAlice(), ""), 0, "TLS 1.2", "accepted: the handshake is complete")
}

// The server's verdict is learned however it is given. Each server takes the
// certificate.
func TestAccepted(t *testing.T) {
	tests := map[string]struct {
		tickets bool
		serve   func(*tls.Conn)
		stdin   string
		want    string
	}{
		"ticket":                 {true, func(c *tls.Conn) { io.Copy(io.Discard, c) }, "", "it sent a session ticket"},
		"ticket, then the end":   {true, func(c *tls.Conn) {}, "", "it sent a session ticket"},
		"data":                   {false, func(c *tls.Conn) { io.WriteString(c, "hello") }, "", "it sent data"},
		"data as an answer":      {false, func(c *tls.Conn) { io.CopyN(c, c, 3) }, "abc", "it sent data"},
		"close at once":          {false, func(c *tls.Conn) {}, "", "it closed the connection in good order"},
		"close when we close":    {false, func(c *tls.Conn) { io.Copy(io.Discard, c) }, "", "it closed the connection in good order"},
		"close after our words":  {false, func(c *tls.Conn) { io.Copy(io.Discard, c) }, "abc", "it closed the connection in good order"},
		"silence after a ticket": {true, func(c *tls.Conn) { time.Sleep(time.Second) }, "", "it sent a session ticket"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.config.SessionTicketsDisabled = !test.tickets
			r.serve = test.serve
			wantReport(t, r.connect(t, asAlice(), test.stdin), 0, "accepted: "+test.want)
		})
	}
}

// With TLS 1.3 the client's handshake is complete in each of these.
func TestNotAccepted(t *testing.T) {
	tests := map[string]struct {
		spoil func(t *testing.T, r *rig)
		o     connectOptions
		want  []string
	}{
		"another CA": {func(t *testing.T, r *rig) { r.config.ClientCAs = clienttest.NewCA(t).Pool() }, asAlice(),
			[]string{"the server refused: remote error: tls: unknown certificate authority", "holdfast certificate show alice"}},
		"another CA, no tickets": {func(t *testing.T, r *rig) {
			r.config.ClientCAs, r.config.SessionTicketsDisabled = clienttest.NewCA(t).Pool(), true
		}, asAlice(), []string{"unknown certificate authority"}},
		"no certificate": {func(*testing.T, *rig) {}, connectOptions{},
			[]string{"no certificate, which the server asked for", "certificate required", "--key names"}},
		"a bare end": {func(t *testing.T, r *rig) { r.drop() }, asAlice(),
			[]string{"the server did not say whether it takes the client certificate"}},
		"silence": {func(t *testing.T, r *rig) {
			r.config.SessionTicketsDisabled = true
			r.serve = func(*tls.Conn) { time.Sleep(2 * time.Second) }
		}, asAlice(), []string{"the server did not say whether it takes the client certificate"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			test.spoil(t, r)
			got := r.connect(t, test.o, "")
			wantReport(t, got, 1, append(test.want, "version    TLS 1.3", "hint: ")...)
			if strings.Contains(got.stderr, "accepted:") {
				t.Errorf("called accepted: %q", got.stderr)
			}
		})
	}
}

// drop makes the server close its socket where its verdict should be.
func (r *rig) drop() {
	r.config.VerifyPeerCertificate = nil
	r.wrap = func(c net.Conn) net.Conn {
		r.config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := r.config.Clone()
			config.GetConfigForClient = nil
			config.VerifyConnection = func(tls.ConnectionState) error { return c.Close() }
			return config, nil
		}
		return c
	}
}

// The server is held to its name and CA before anything is signed.
func TestServerNotVerified(t *testing.T) {
	other := file(t, clienttest.NewCA(t).PEM)
	tests := map[string]struct {
		o    connectOptions
		want []string
	}{
		"another CA":   {connectOptions{key: "alice", ca: other}, []string{"unknown authority", "--ca names"}},
		"another name": {connectOptions{key: "alice", serverName: "api.example"}, []string{"api.example", "--server-name says"}},
	}
	for name, test := range tests {
		r := newRig(t)
		got := r.connect(t, test.o, "")
		wantReport(t, got, 1, test.want...)
		if n := len(r.agent.Calls(agentwire.SignTLSClient)); n != 0 {
			t.Errorf("%s: the key signed", name)
		}
	}
}

// The user sees the agent's error, with its exit code.
func TestConnectKeyFaults(t *testing.T) {
	tests := map[string]struct {
		spoil func(*rig)
		o     connectOptions
		code  int
		want  string
	}{
		"denied":         {func(r *rig) { r.fail(fault.Denied) }, asAlice(), 4, "error: fact"},
		"PIN wanted":     {func(r *rig) { r.fail(fault.PINRequired) }, asAlice(), 5, "error: fact"},
		"device failed":  {func(r *rig) { r.fail(fault.DeviceFailed) }, asAlice(), 1, "error: fact"},
		"no such key":    {func(*rig) {}, connectOptions{key: "bob"}, 4, "no key"},
		"no key's name":  {func(*rig) {}, connectOptions{key: "../bob"}, 2, "not a key name"},
		"no certificate": {func(r *rig) { r.agent.Change("alice", func(k *agentwire.Key) { k.Chain = nil }) }, asAlice(), 1, "has no certificate"},
		"a server's key": {func(r *rig) { r.agent.AddKey("www", keys.TLSServer, keys.ES256) }, connectOptions{key: "www"}, 1, "cannot log in"},
		"too old a TLS": {func(r *rig) {
			r.agent.Change("alice", func(k *agentwire.Key) { k.TLS12 = false })
			r.config.MaxVersion = tls.VersionTLS12
		}, asAlice(), 1, "signs TLS 1.3 only"},
		"nobody asks": {func(r *rig) { r.config.ClientAuth = tls.NoClientCert }, asAlice(), 1, "did not ask for a client certificate"},
		"no CA file":  {func(*rig) {}, connectOptions{key: "alice", ca: "/nonexistent"}, 1, "no such file"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			test.spoil(r)
			wantReport(t, r.connect(t, test.o, ""), test.code, test.want)
		})
	}
}

func (r *rig) fail(kind fault.Kind) {
	r.agent.Fail(agentwire.SignTLSClient, &fault.Error{Kind: kind, Message: "fact", Hint: "hint"})
}

func TestConnectWithoutServer(t *testing.T) {
	command{}.run("tls", "connect", "127.0.0.1:1").want(t, 1, "refused", "check the address")
	command{socket: "/nonexistent/agent.sock"}.run("tls", "connect", "--key", "alice", "127.0.0.1:1").want(t, 3, "no agent")
}

func TestConnectWithoutKey(t *testing.T) {
	r := newRig(t)
	r.config.ClientAuth = tls.NoClientCert
	got := r.connect(t, connectOptions{}, "abc")
	wantReport(t, got, 0, "the server did not ask for a certificate", "accepted")
	if got.stdout != "abc" {
		t.Errorf("got %q", got.stdout)
	}
}

// touched notes whether it was read.
type touched struct{ yes atomic.Bool }

func (r *touched) Read([]byte) (int, error) {
	r.yes.Store(true)
	return 0, io.EOF
}

// Nothing is sent to a server that is about to refuse: its alert could be lost
// when it closes on data that it has not read.
func TestVerdictComesBeforeStdin(t *testing.T) {
	r := newRig(t)
	r.config.VerifyConnection = func(tls.ConnectionState) error {
		time.Sleep(50 * time.Millisecond)
		return errors.New("not you")
	}
	var stdin touched
	var stderr synced
	a := &app{streams: streams{&stdin, io.Discard, &stderr, nil}, timeouts: usualTimeouts(), socket: r.agent.Socket}
	err := a.connect(context.Background(), &connectOptions{key: "alice", ca: r.caFile}, r.start(t))
	if code := a.report(err); code != 1 || stdin.yes.Load() {
		t.Errorf("got code %d, and stdin was read: %t; %s", code, stdin.yes.Load(), stderr.String())
	}
}

// A server that was asked something is not hung up on while it thinks.
func TestAnswerIsWaitedFor(t *testing.T) {
	r := newRig(t)
	r.serve = func(c *tls.Conn) {
		io.ReadFull(c, make([]byte, 3))
		c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err == io.EOF {
			io.WriteString(c, "too late")
			return
		}
		io.WriteString(c, "answer")
	}
	var stdout, stderr synced
	a := &app{streams: streams{strings.NewReader("ask"), &stdout, &stderr, nil}, timeouts: usualTimeouts(), socket: r.agent.Socket}
	err := a.connect(context.Background(), &connectOptions{key: "alice", ca: r.caFile}, r.start(t))
	if err != nil || stdout.String() != "answer" {
		t.Errorf("got %q, %v; %s", stdout.String(), err, stderr.String())
	}
}
