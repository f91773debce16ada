package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"holdfast/client/broker/ticket"
	"holdfast/internal/fault"
)

// Anybody on the machine can connect to loopback. These bounds keep others from
// using up the proxy: connections that have shown no ticket are few and short. One
// person may have thousands of uids (subuid(5)), so that those who have no ticket at
// all share a part of what there is, and leave the rest to those who have one.
const (
	strangerTime       = 10 * time.Second
	maxStrangers       = 1024
	maxStrangersPerUID = 256
	maxUnknown         = maxStrangers / 2 // strangers whose uid has no ticket
	maxConnections     = 4096
	maxPerUID          = 2048
	maxRefusals        = 100 // of one connection, in a row
	maxOwned           = 16  // tickets remembered for one connection
)

var (
	errFull        = errors.New("too many connections")
	errAnotherUser = &fault.Error{
		Kind: fault.Denied, Message: "the connection belongs to another user", Hint: "a ticket counts only in the process that ran the plugin",
	}
)

// doors counts the connections by who opened them.
type doors struct {
	mu        sync.Mutex
	all       map[*connection]struct{}
	strangers int
	unknown   int // of the strangers
	perUID    map[uint32]*tally
}

// tally is what one uid has open.
type tally struct{ all, strangers int }

func newDoors() doors {
	return doors{all: map[*connection]struct{}{}, perUID: map[uint32]*tally{}}
}

// enter counts a new connection, unless there are too many.
func (d *doors) enter(c *connection) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	own := d.perUID[c.uid]
	if own == nil {
		own = &tally{}
	}
	if len(d.all) >= maxConnections || d.strangers >= maxStrangers || own.all >= maxPerUID || own.strangers >= maxStrangersPerUID || c.unknown && d.unknown >= maxUnknown {
		return errFull
	}
	d.perUID[c.uid] = own
	d.all[c] = struct{}{}
	d.strangers++
	if c.unknown {
		d.unknown++
	}
	own.all++
	own.strangers++
	c.stranger = true
	c.timer = time.AfterFunc(strangerTime, func() { c.Close() })
	return nil
}

// welcome is called for a connection that has shown a ticket.
func (d *doors) welcome(c *connection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !c.stranger {
		return
	}
	c.stranger = false
	c.timer.Stop()
	d.strangers--
	if c.unknown {
		d.unknown--
	}
	if own := d.perUID[c.uid]; own != nil {
		own.strangers--
	}
}

// leave is called when a connection is closed, perhaps more than once.
func (d *doors) leave(c *connection) {
	d.welcome(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, open := d.all[c]; !open {
		return
	}
	delete(d.all, c)
	if own := d.perUID[c.uid]; own != nil {
		if own.all--; own.all == 0 {
			delete(d.perUID, c.uid)
		}
	}
}

// close cuts the connections that are left.
func (d *doors) close() {
	d.mu.Lock()
	var left []*connection
	for c := range d.all {
		left = append(left, c)
	}
	d.mu.Unlock()
	for _, c := range left {
		c.Close()
	}
}

// A listener lets in who comes from this machine.
type listener struct {
	net.Listener
	proxy   *Proxy
	profile string // empty for the shared one
}

// Accept returns the next connection that may come in, and closes others.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, err := l.receive(conn)
		if err == nil {
			return c, nil
		}
		conn.Close()
		l.proxy.counts.refusedConnection(err)
		l.proxy.log.Debug("connection refused", "remote", conn.RemoteAddr().String(), "error", err.Error())
	}
}

// receive finds out whose connection it is, and counts it.
func (l *listener) receive(conn net.Conn) (*connection, error) {
	remote, ok1 := conn.RemoteAddr().(*net.TCPAddr)
	local, ok2 := conn.LocalAddr().(*net.TCPAddr)
	if !ok1 || !ok2 || !remote.IP.IsLoopback() || !local.IP.IsLoopback() {
		return nil, errors.New("it is not of this machine")
	}
	c := &connection{
		Conn: conn, doors: &l.proxy.doors, profile: l.profile,
		client: remote.AddrPort(), server: local.AddrPort(), owned: map[*ticket.Holder]struct{}{},
	}
	var err error
	if c.uid, err = ticket.OwnerUID(c.client, c.server); err != nil {
		return nil, err
	}
	c.unknown = c.uid != uint32(os.Getuid()) && !l.proxy.options.Tickets.Has(c.uid)
	return c, l.proxy.doors.enter(c)
}

// A connection is one that a client has opened.
type connection struct {
	net.Conn
	doors          *doors
	profile        string // the listener's own, or empty
	client, server netip.AddrPort
	uid            uint32

	unknown  bool        // its uid had no ticket when it came
	stranger bool        // has shown no ticket; guarded by doors
	timer    *time.Timer // ends it while it is a stranger

	mu       sync.Mutex
	owned    map[*ticket.Holder]struct{} // whose process owns it; guarded by mu
	refusals int                         // since the last request that was let through; guarded by mu
}

// Close closes the connection.
func (c *connection) Close() error {
	c.doors.leave(c)
	return c.Conn.Close()
}

// owns asks the kernel once whether the holder's process owns the connection. A
// refusal is not remembered. The kernel is asked by addresses, which are another
// connection's once this one is gone: it has to be of the uid that opened this one.
func (c *connection) owns(h *ticket.Holder) (asked bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.owned[h]; known {
		return false, nil
	}
	if c.uid != h.Process.UID {
		return false, errAnotherUser
	}
	if err := h.Owns(c.client, c.server); err != nil {
		return true, err
	}
	if len(c.owned) >= maxOwned {
		clear(c.owned) // a client that lives long gets a new ticket every few minutes
	}
	c.owned[h] = struct{}{}
	return true, nil
}

// judged counts refusals in a row, and reports whether there are too many.
func (c *connection) judged(passed bool) (tooMany bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if passed {
		c.refusals = 0
		return false
	}
	c.refusals++
	return c.refusals >= maxRefusals
}

type connectionKey struct{}

// remember puts the connection where its requests find it.
func remember(ctx context.Context, conn net.Conn) context.Context {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}
