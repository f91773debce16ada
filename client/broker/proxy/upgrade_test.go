package proxy

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/test/role"
)

// switchTo plays a cluster that upgrades connections and hands them to f.
func switchTo(protocol string, f func(conn *tls.Conn, in *bufio.Reader)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != protocol || r.ProtoMajor != 1 {
			http.Error(w, "not asked to", http.StatusBadRequest)
			return
		}
		conn, in, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Stream-Protocol-Version: v4\r\n\r\n", protocol)
		f(conn.(*tls.Conn), in.Reader)
	}
}

// upgrade asks for a protocol and returns the connection.
func (r *rig) upgrade(protocol string) (*tls.Conn, *bufio.Reader, *http.Response) {
	r.t.Helper()
	return r.upgradeOf("POST /api/v1/namespaces/a/pods/b/exec?command=x", protocol)
}

func (r *rig) upgradeOf(request, protocol string) (*tls.Conn, *bufio.Reader, *http.Response) {
	r.t.Helper()
	conn := r.dial("prod")
	fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nAuthorization: Bearer %s\r\n"+
		"Connection: Upgrade\r\nUpgrade: %s\r\nX-Stream-Protocol-Version: v4\r\n\r\n", request, r.ticket("prod"), protocol)
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return conn, in, response
}

func TestUpgradesBothWays(t *testing.T) {
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		t.Run(protocol, func(t *testing.T) {
			r := newRig(t, switchTo(protocol, func(conn *tls.Conn, in *bufio.Reader) { io.Copy(conn, in) }))
			conn, in, response := r.upgrade(protocol)
			if response.StatusCode != 101 || response.Header.Get("X-Stream-Protocol-Version") != "v4" || response.Header.Get("Upgrade") != protocol {
				t.Fatalf("got %v", response)
			}
			if n := r.count("holdfast_broker_proxy_upgrades", "profile", "prod"); n != 1 {
				t.Errorf("got %v upgrades open", n)
			}
			const size = 16 << 20
			sent, got := sha256.New(), sha256.New()
			go func() {
				io.CopyN(io.MultiWriter(conn, sent), rand.Reader, size)
				conn.CloseWrite()
			}()
			if n, err := io.Copy(got, in); n != size || err != nil {
				t.Fatalf("got %d bytes, %v", n, err)
			}
			if string(sent.Sum(nil)) != string(got.Sum(nil)) {
				t.Error("what came back is not what was sent")
			}
			conn.Close()
			role.Until(t, "the upgrade has ended", func() bool { return r.count("holdfast_broker_proxy_upgrades", "profile", "prod") == 0 })
		})
	}
}

// The client has said all it wants and waits for the answer, as `kubectl exec -i`
// with a pipe.
func TestUpgradeHalfClosed(t *testing.T) {
	r := newRig(t, switchTo("SPDY/3.1", func(conn *tls.Conn, in *bufio.Reader) {
		text, err := io.ReadAll(in)
		fmt.Fprintf(conn, "got %s, %v", text, err)
	}))
	conn, in, _ := r.upgrade("SPDY/3.1")
	io.WriteString(conn, "all of it")
	conn.CloseWrite()
	if text, err := io.ReadAll(in); string(text) != "got all of it, <nil>" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestUpgradeEndsWithEitherSide(t *testing.T) {
	ended := make(chan error, 1)
	r := newRig(t, switchTo("SPDY/3.1", func(conn *tls.Conn, in *bufio.Reader) {
		io.WriteString(conn, "hello")
		_, err := io.ReadAll(in)
		ended <- err
	}))
	conn, _, _ := r.upgrade("SPDY/3.1")
	conn.NetConn().Close() // as when the process is killed
	<-ended
	role.Until(t, "the upgrade has ended", func() bool { return r.count("holdfast_broker_proxy_upgrades", "profile", "prod") == 0 })

	r = newRig(t, switchTo("SPDY/3.1", func(conn *tls.Conn, in *bufio.Reader) { conn.NetConn().Close() }))
	_, in, _ := r.upgrade("SPDY/3.1")
	if _, err := in.ReadByte(); err == nil {
		t.Error("got a byte of a connection that was cut")
	}
}

func TestUpgradeRefusedByTheCluster(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
		w.WriteHeader(403)
		io.WriteString(w, "no")
	})
	_, _, response := r.upgrade("websocket")
	if text, err := io.ReadAll(response.Body); response.StatusCode != 403 || string(text) != "no" || err != nil {
		t.Errorf("got %v %q %v", response, text, err)
	}
}

func TestUpgradeAfterA401(t *testing.T) {
	first := true
	echo := switchTo("websocket", func(conn *tls.Conn, in *bufio.Reader) { io.Copy(conn, in) })
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
		if first {
			first = false
			w.WriteHeader(401)
			return
		}
		echo(w, request)
	})
	if _, _, response := r.upgrade("websocket"); response.StatusCode != 101 || r.pools.retired != 1 {
		t.Errorf("got %v, %d retirements", response, r.pools.retired)
	}
}

func TestUpgradeNeedsATicket(t *testing.T) {
	r := newRig(t, switchTo("websocket", func(*tls.Conn, *bufio.Reader) { t.Error("reached the cluster") }))
	conn := r.dial("prod")
	io.WriteString(conn, "GET /api HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Protocol: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.aG9sZGZhc3Q\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != 401 {
		t.Fatalf("got %v, %v", response, err)
	}
	if text, _ := io.ReadAll(response.Body); !strings.Contains(string(text), "takes no token in Sec-WebSocket-Protocol") {
		t.Errorf("got %s", text)
	}
}

// Requests in a connection that was upgraded would not be looked at.
func TestUpgradesToHTTPAreRefused(t *testing.T) {
	reached := false
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) { reached = true; ok(w, q) })
	client, bearer := r.client("prod", false), "Bearer "+r.ticket("prod")
	for _, protocol := range []string{"h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.0"} {
		r.do(client, "GET", "/api", nil, "Authorization", bearer, "Connection", "Upgrade", "Upgrade", protocol).want(t, http.StatusBadRequest, "an upgrade to")
	}
	if reached {
		t.Error("one reached the cluster")
	}
}

func TestShutdownCutsUpgrades(t *testing.T) {
	r := newRig(t, switchTo("SPDY/3.1", func(conn *tls.Conn, in *bufio.Reader) { io.Copy(conn, in) }))
	_, in, _ := r.upgrade("SPDY/3.1")
	r.stop(50 * time.Millisecond)
	if _, err := in.ReadByte(); err == nil {
		t.Error("the upgrade is still open")
	}
}

// An upgraded connection gets time to end before the shutdown.
func TestUpgradesAreWaitedFor(t *testing.T) {
	r := newRig(t, switchTo("SPDY/3.1", func(conn *tls.Conn, in *bufio.Reader) { io.Copy(conn, in) }))
	conn, in, _ := r.upgrade("SPDY/3.1")
	waited := make(chan struct{})
	go func() {
		r.proxy.WaitEndless(context.Background())
		close(waited)
	}()
	io.WriteString(conn, "still here\n")
	if line, err := in.ReadString('\n'); line != "still here\n" {
		t.Errorf("got %q, %v", line, err)
	}
	select {
	case <-waited:
		t.Error("an upgraded connection is open, and nothing waits for it")
	default:
	}
	conn.Close()
	<-waited
}

// A watch over WebSocket is ended at once: its client asks again.
func TestShutdownCutsUpgradedWatches(t *testing.T) {
	r := newRig(t, switchTo("websocket", func(conn *tls.Conn, in *bufio.Reader) { io.Copy(conn, in) }))
	_, in, _ := r.upgradeOf("GET /api/v1/pods?watch=true", "websocket")
	r.proxy.WaitEndless(context.Background())
	stopped := make(chan struct{})
	go func() {
		r.shutdown.Do(func() { r.proxy.Shutdown(context.Background()) })
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(30 * time.Second):
		t.Fatal("the shutdown waits for the watch")
	}
	if _, err := in.ReadByte(); err == nil {
		t.Error("the watch is still open")
	}
}

// The cluster has ended its side, and the client does not end its own.
func TestShutdownCutsHalfOpenUpgrades(t *testing.T) {
	r := newRig(t, switchTo("SPDY/3.1", func(*tls.Conn, *bufio.Reader) {}))
	_, in, _ := r.upgrade("SPDY/3.1")
	if _, err := in.ReadByte(); err != io.EOF {
		t.Fatalf("got %v, want the cluster's end", err)
	}
	stopped := make(chan struct{})
	go func() {
		r.stop(0)
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(30 * time.Second):
		t.Error("the shutdown waits for the client")
	}
}

func TestUpgrades(t *testing.T) {
	cases := []struct {
		proto      int
		connection []string
		upgrade    string
		want       bool
	}{
		{1, []string{"Upgrade"}, "websocket", true},
		{1, []string{"keep-alive, upgrade"}, "SPDY/3.1", true},
		{1, []string{"keep-alive", "Upgrade"}, "SPDY/3.1", true},
		{1, []string{"keep-alive"}, "websocket", false},
		{1, []string{"Upgrade"}, "", false},
		{1, []string{"xupgrade"}, "websocket", false},
		{2, []string{"Upgrade"}, "websocket", false},
	}
	for _, c := range cases {
		r := &http.Request{ProtoMajor: c.proto, Header: http.Header{"Connection": c.connection, "Upgrade": {c.upgrade}}}
		if got := upgrades(r); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}
