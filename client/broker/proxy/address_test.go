package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"holdfast/client/broker/loopback"
)

// serveAll serves every address of the loopback interface, and returns the port.
func (r *rig) serveAll() string {
	r.t.Helper()
	l, err := loopback.ListenAll(0)
	if err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.proxy.Serve(l, "") }()
	r.t.Cleanup(func() {
		r.stop(0)
		if err := <-ended; err != nil {
			r.t.Errorf("serve: %v", err)
		}
	})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// An address names a profile, whatever name the client asks for, and has a certificate
// of its own.
func TestAddressOfAProfile(t *testing.T) {
	r := newRig(t, ok)
	pair, _ := identity()
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	r.proxy.options.At = func(a netip.Addr) (string, *tls.Certificate) {
		if a.String() == "127.64.0.1" {
			return "prod", &pair
		}
		return "", nil
	}
	port := r.serveAll()
	prod, stage := "Bearer "+r.ticket("prod"), "Bearer "+r.ticket("stage")
	for _, test := range []struct {
		ip, name, ticket string
		code             int
	}{
		{"127.64.0.1", "", prod, 200},
		{"127.64.0.1", "prod.holdfast.internal", prod, 200},
		{"127.64.0.1", "stage.holdfast.internal", prod, 401},
		{"127.64.0.1", "", stage, 401},
		{"127.0.0.1", "", prod, 401},
		{"127.0.0.1", "stage.holdfast.internal", stage, 200},
		{"127.64.0.2", "prod.holdfast.internal", prod, 200},
	} {
		conn, err := tls.Dial("tcp", net.JoinHostPort(test.ip, port), &tls.Config{ServerName: test.name, InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		if own := conn.ConnectionState().PeerCertificates[0].Equal(leaf); own != (test.ip == "127.64.0.1") {
			t.Errorf("%+v: the profile's own certificate: %v", test, own)
		}
		if code := statusOf(t, conn, test.ticket); code != test.code {
			t.Errorf("%+v: got %d", test, code)
		}
	}
}

// A program of this machine that connects to an address of another interface gets
// nothing, although the packets take the loopback interface.
func TestOtherInterfacesGetNothing(t *testing.T) {
	r := newRig(t, ok)
	port := r.serveAll()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, a := range all {
		ip, isNet := a.(*net.IPNet)
		if !isNet || ip.IP.To4() == nil || ip.IP.IsLoopback() {
			continue
		}
		tried++
		conn, err := net.Dial("tcp4", net.JoinHostPort(ip.IP.String(), port))
		if err != nil {
			continue // refused, which is as good
		}
		if n, _ := io.Copy(io.Discard, conn); n != 0 {
			t.Errorf("%v: got %d bytes", ip, n)
		}
		conn.Close()
	}
	if tried == 0 {
		t.Log("this machine has no other address")
	}
}

// statusOf makes a request on a connection, closes it, and returns the status code.
func statusOf(t *testing.T, conn net.Conn, ticket string) int {
	t.Helper()
	defer conn.Close()
	fmt.Fprintf(conn, "GET /api HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n", ticket)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}
