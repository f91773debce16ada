package upstream_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/client/clienttest"
)

// forwarder is a proxy that knows the three ways of being asked.
type forwarder struct {
	mu    sync.Mutex
	asked []string // as "WAY ADDRESS"
	certs int      // how many clients signed in to it
}

func (f *forwarder) note(way, address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, way+" "+address)
}

// connect serves CONNECT (RFC 9110, section 9.3.6).
func (f *forwarder) connect(c net.Conn) {
	in := bufio.NewReader(c)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	if r.Method != "CONNECT" {
		fmt.Fprintf(c, "HTTP/1.1 405 Method Not Allowed\r\n\r\n")
		return
	}
	f.note("connect "+r.Header.Get("Proxy-Authorization"), r.Host)
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n\r\n")
	join(c, in, r.Host)
}

// socks serves SOCKS 5 without authentication (RFC 1928), addresses as IPv4.
func (f *forwarder) socks(c net.Conn) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(c, head); err != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c, int64(head[1]))
	_, _ = c.Write([]byte{5, 0})
	request := make([]byte, 10)
	if _, err := io.ReadFull(c, request); err != nil || request[3] != 1 {
		return
	}
	address := fmt.Sprintf("%s:%d", net.IP(request[4:8]), binary.BigEndian.Uint16(request[8:]))
	f.note("socks", address)
	_, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	join(c, c, address)
}

// join copies both ways until one ends.
func join(c net.Conn, in io.Reader, address string) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, in)
		server.Close()
	}()
	_, _ = io.Copy(c, server)
}

// slowReader takes its time for whatever there is to read.
type slowReader struct {
	io.Reader
	pause time.Duration
}

func (s slowReader) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	time.Sleep(s.pause)
	return n, err
}

func TestProxies(t *testing.T) {
	for scheme, want := range map[string]string{"http": "connect  ", "https": "connect  ", "socks5": "socks ", "user": "connect Basic dTpw "} {
		t.Run(scheme, func(t *testing.T) {
			r, f := newRig(t, nil), &forwarder{}
			serve := f.connect
			url := "http"
			switch scheme {
			case "https":
				url, serve = "https", f.overTLS(r.ca, f.connect)
			case "socks5":
				url, serve = "socks5", f.socks
			}
			address := strings.TrimPrefix(listen(t, serve), "https://")
			if scheme == "user" {
				address = "u:p@" + address
			}
			r.profile.Cluster.ProxyURL = url + "://" + address
			if got := get(t, r.transport(), "/who"); !strings.HasPrefix(got, "alice HTTP/2.0") {
				t.Errorf("got %s", got)
			}
			upgraded(t, r.pools.Upgrade(me(), r.profile))
			target := strings.TrimPrefix(r.server.URL, "https://")
			if len(f.asked) != 2 || f.asked[0] != want+target {
				t.Errorf("the proxy was asked %q, want %q", f.asked, want+target)
			}
			if f.certs != 0 {
				t.Error("the key signed in to the proxy")
			}
			if n := r.signatures(t); n != 2 {
				t.Errorf("%d signatures", n)
			}
		})
	}
}

// overTLS serves over TLS, and asks the client to sign in.
func (f *forwarder) overTLS(ca *clienttest.CA, serve func(net.Conn)) func(net.Conn) {
	config := &tls.Config{Certificates: []tls.Certificate{ca.Server()}, ClientAuth: tls.RequestClientCert}
	return func(c net.Conn) {
		over := tls.Server(c, config)
		if over.Handshake() != nil {
			return
		}
		f.mu.Lock()
		f.certs += len(over.ConnectionState().PeerCertificates)
		f.mu.Unlock()
		serve(over)
	}
}

func TestProxyErrors(t *testing.T) {
	r := newRig(t, nil)
	r.profile.Cluster.ProxyURL = strings.Replace(listen(t, (&forwarder{}).overTLS(clienttest.NewCA(t), func(net.Conn) {})), "127.0.0.1", "user:secret@127.0.0.1", 1)
	e := r.failure(t)
	expectError(t, e, "tls", "the proxy 127.0.0.1", "authorities")
	if strings.Contains(fmt.Sprintf("%+v", e), "secret") {
		t.Errorf("the password is in %+v", e)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	r.profile.Cluster.ProxyURL = "http://" + l.Addr().String()
	expectError(t, r.failure(t), "network", "the proxy "+l.Addr().String()+" cannot be reached", "proxy-url")
	r.profile.Cluster.ProxyURL = "http://%%"
	expectError(t, r.failure(t), "tls", "proxy-url is no URL", "kubeconfig add")
}

// The environment's proxy settings are ignored.
func TestEnvironmentIsIgnored(t *testing.T) {
	r := newRig(t, nil)
	r.profile.Cluster.Server = strings.Replace(r.server.URL, "127.0.0.1", "localhost", 1)
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	get(t, r.transport(), "/who")
}

// listenSlowly forwards to a server after a pause, and its answers after another.
func listenSlowly(t *testing.T, address string, first, each time.Duration) string {
	t.Helper()
	return listen(t, func(c net.Conn) {
		time.Sleep(first)
		server, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		defer server.Close()
		go func() {
			_, _ = io.Copy(server, c)
			server.Close()
		}()
		_, _ = io.Copy(c, slowReader{server, each})
	})
}
