package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/client/broker/ticket"
	"holdfast/internal/fault"
)

func TestServeRefusesOtherAddresses(t *testing.T) {
	r := newRig(t, ok)
	for _, address := range []string{"0.0.0.0:0", "[::]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.proxy.Serve(l, ""); err == nil || !strings.Contains(err.Error(), "no loopback address") {
			t.Errorf("%s: got %v", address, err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: still listens: %v", address, err)
		}
	}
	r.proxy.server.Close()
	l, err := net.Listen("unix", "@holdfast-proxy-test")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.proxy.Serve(l, ""); err == nil {
		t.Error("took a Unix socket")
	}
}

// from is a connection with addresses of its own.
type from struct {
	net.Conn
	remote, local string
}

func (f from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.remote))
}
func (f from) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.local)) }

func TestRemoteAddressesAreRefused(t *testing.T) {
	p := New(Options{})
	defer p.Shutdown(context.Background())
	l := &listener{proxy: p}
	for _, f := range []from{{nil, "192.0.2.1:1", "127.0.0.1:1"}, {nil, "127.0.0.1:1", "192.0.2.1:1"}} {
		if _, err := l.receive(f); err == nil || !strings.Contains(err.Error(), "not from this machine") {
			t.Errorf("got %v", err)
		}
	}
	// Nobody's: there is no such connection.
	if _, err := l.receive(from{nil, "127.0.0.1:1", "127.0.0.1:2"}); err == nil {
		t.Error("took a connection that the kernel does not know")
	}
}

// pipes makes connections of a uid until they are refused. Those from 100000 on have
// no ticket.
func pipes(d *connections, uid uint32, authenticated bool) (taken []*connection, ends []net.Conn) {
	for {
		near, far := net.Pipe()
		c := &connection{Conn: near, all: d, uid: uid, unknown: uid >= 100_000}
		if err := d.enter(c); err != nil {
			near.Close()
			far.Close()
			return taken, ends
		}
		if authenticated {
			d.authenticated(c)
		}
		taken, ends = append(taken, c), append(ends, far)
	}
}

// When a connection is gone, its addresses may be another's that the ticket's process
// has opened since: the kernel is not even asked.
func TestConnectionOfAnotherUser(t *testing.T) {
	c := &connection{uid: 7, owned: map[*ticket.Holder]struct{}{}}
	asked, err := c.owns(&ticket.Holder{Process: ticket.Process{UID: 8}})
	if asked || fault.KindOf(err) != fault.Denied || len(c.owned) != 0 {
		t.Errorf("got %v, %v; want denied unasked", asked, err)
	}
}

func TestLimitsOfConnections(t *testing.T) {
	d := newConnections()
	ticketless, _ := pipes(&d, 1, false)
	if len(ticketless) != maxTicketlessPerUID {
		t.Errorf("one uid has %d connections without a ticket", len(ticketless))
	}
	known, _ := pipes(&d, 2, true)
	if len(known) != maxPerUID {
		t.Errorf("one uid has %d connections", len(known))
	}
	var more []*connection
	unknown := 0
	for uid := uint32(100_000); uid < 100_020; uid++ { // a user's subordinate uids, say
		taken, _ := pipes(&d, uid, false)
		more, unknown = append(more, taken...), unknown+len(taken)
	}
	if unknown != maxTicketlessUnknown {
		t.Errorf("uids without a ticket have %d connections", unknown)
	}
	for uid := uint32(3); uid < 20; uid++ {
		taken, _ := pipes(&d, uid, false)
		more = append(more, taken...)
	}
	if n := len(ticketless) + len(more); n != maxTicketless {
		t.Errorf("%d connections without a ticket in all", n)
	}
	for _, c := range more {
		c.Close()
		c.Close() // counts once
	}
	// Those who use up theirs leave room for others, up to the total.
	third, _ := pipes(&d, 3, true)
	if n := len(d.open); n != maxConnections {
		t.Errorf("%d connections in all, %d of the third uid", n, len(third))
	}
	d.close()
	if len(d.open) != 0 || d.ticketless != 0 || d.unknown != 0 || len(d.perUID) != 0 {
		t.Errorf("after the last has gone: %d, %d ticketless, %d uids", len(d.open), d.ticketless, len(d.perUID))
	}
}

func TestStrangersAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newConnections()
		near, far := net.Pipe()
		ticketless := &connection{Conn: near, all: &d, uid: 1}
		if err := d.enter(ticketless); err != nil {
			t.Fatal(err)
		}
		other, otherFar := net.Pipe()
		known := &connection{Conn: other, all: &d, uid: 1}
		if err := d.enter(known); err != nil {
			t.Fatal(err)
		}
		d.authenticated(known)
		began := time.Now()
		if _, err := far.Read(make([]byte, 1)); err != io.EOF || time.Since(began) != ticketTimeout {
			t.Errorf("got %v after %v, want the end after %v", err, time.Since(began), ticketTimeout)
		}
		time.Sleep(time.Hour)
		otherFar.SetReadDeadline(time.Now())
		if _, err := otherFar.Read(make([]byte, 1)); err == io.EOF {
			t.Error("one that has shown a ticket was closed")
		}
		known.Close()
		if d.ticketless != 0 || len(d.open) != 0 {
			t.Errorf("%d ticketless, %d connections are left", d.ticketless, len(d.open))
		}
	})
}

// A connection on which nothing but refused requests come.
func TestTooManyRefusals(t *testing.T) {
	r := newRig(t, ok)
	conn := r.dial("prod")
	in := bufio.NewReader(conn)
	for i := 1; ; i++ {
		io.WriteString(conn, "GET /api HTTP/1.1\r\nHost: x\r\n\r\n")
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		if response.Close {
			if i != maxRefusals {
				t.Errorf("closed after %d refusals", i)
			}
			break
		}
	}
}

func TestBigHeaders(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		r := newRig(t, ok)
		request, err := http.NewRequest("GET", "https://"+r.address, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Big", strings.Repeat("x", maxHeader+8<<10))
		response, err := r.client("prod", http2).Do(request)
		if err == nil {
			response.Body.Close()
			if response.StatusCode != 431 {
				t.Errorf("got %v", response)
			}
		}
	})
}

func TestOldTLSIsRefused(t *testing.T) {
	r := newRig(t, ok)
	c := r.config("prod")
	c.MaxVersion = tls.VersionTLS12
	if conn, err := tls.Dial("tcp", r.address, c); err == nil {
		conn.Close()
		t.Error("TLS 1.2 is spoken")
	}
	c = r.config("prod")
	c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for range 2 {
		conn, err := tls.Dial("tcp", r.address, c)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
		io.Copy(io.Discard, conn)
		if conn.ConnectionState().DidResume {
			t.Error("a session was resumed")
		}
		conn.Close()
	}
}
