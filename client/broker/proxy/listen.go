package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/client/broker/ticket"
	"holdfast/internal/fault"
)

// Every process of the machine can connect to loopback. These limits keep the proxy
// usable: connections without a ticket are few and short. One user may have
// thousands of uids (subuid(5)), so the uids that have no ticket at all share one
// part of the limit, and the rest is for the uids that have one.
const (
	ticketTimeout        = 10 * time.Second // to show a ticket
	maxTicketless        = 1024             // connections that have shown no ticket
	maxTicketlessPerUID  = 256
	maxTicketlessUnknown = maxTicketless / 2 // of uids that have no ticket
	maxConnections       = 4096
	maxPerUID            = 2048
	maxRefusals          = 100 // of one connection, in a row
	maxOwned             = 16  // tickets remembered for one connection
)

var (
	errFull        = errors.New("too many connections")
	errAnotherUser = &fault.Error{
		Kind: fault.Denied, Message: "the connection belongs to another user", Hint: "a ticket counts only in the process that ran the plugin",
	}
)

// connections counts the open connections, and keeps a count for each uid.
type connections struct {
	mu         sync.Mutex
	open       map[*connection]struct{}
	ticketless int // have shown no ticket
	unknown    int // of these, the ones whose uid had no ticket
	perUID     map[uint32]*uidCount
	strangers  strangers // has its own lock
}

type uidCount struct{ open, ticketless int }

func newConnections() connections {
	return connections{open: map[*connection]struct{}{}, perUID: map[uint32]*uidCount{}}
}

// enter counts a new connection, unless there are too many.
func (d *connections) enter(c *connection) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	own := d.perUID[c.uid]
	if own == nil {
		own = &uidCount{}
	}
	if len(d.open) >= maxConnections || d.ticketless >= maxTicketless || own.open >= maxPerUID || own.ticketless >= maxTicketlessPerUID || c.unknown && d.unknown >= maxTicketlessUnknown {
		return errFull
	}
	d.perUID[c.uid] = own
	d.open[c] = struct{}{}
	d.ticketless++
	if c.unknown {
		d.unknown++
		c.counted.Store(true)
	}
	own.open++
	own.ticketless++
	c.ticketless = true
	c.timer = time.AfterFunc(ticketTimeout, func() { c.Close() })
	return nil
}

// authenticated is called for a connection that has shown a ticket.
func (d *connections) authenticated(c *connection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !c.ticketless {
		return
	}
	c.ticketless = false
	c.counted.Store(false)
	c.timer.Stop()
	d.ticketless--
	if c.unknown {
		d.unknown--
	}
	if own := d.perUID[c.uid]; own != nil {
		own.ticketless--
	}
}

// leave is called when a connection is closed, perhaps more than once.
func (d *connections) leave(c *connection) {
	d.authenticated(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, open := d.open[c]; !open {
		return
	}
	delete(d.open, c)
	if own := d.perUID[c.uid]; own != nil {
		if own.open--; own.open == 0 {
			delete(d.perUID, c.uid)
		}
	}
}

// close cuts the connections that are left.
func (d *connections) close() { d.closeThose(func(*connection) bool { return true }) }

// closeTicketless cuts the connections that have shown no ticket.
func (d *connections) closeTicketless() {
	d.closeThose(func(c *connection) bool { return c.ticketless })
}

func (d *connections) closeThose(which func(*connection) bool) {
	d.mu.Lock()
	var left []*connection
	for c := range d.open {
		if which(c) {
			left = append(left, c)
		}
	}
	d.mu.Unlock()
	for _, c := range left {
		c.Close()
	}
}

// A listener accepts connections from this machine.
type listener struct {
	net.Listener
	proxy   *Proxy
	profile string // empty for the shared one
}

// Accept returns the next connection within the limits, and closes others.
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

// receive finds the uid that opened a connection, and counts it.
func (l *listener) receive(conn net.Conn) (*connection, error) {
	remote, ok1 := conn.RemoteAddr().(*net.TCPAddr)
	local, ok2 := conn.LocalAddr().(*net.TCPAddr)
	if !ok1 || !ok2 || !remote.IP.IsLoopback() || !local.IP.IsLoopback() {
		return nil, errors.New("the connection is not from this machine")
	}
	own := l.profile
	if own == "" {
		own, _ = l.proxy.at(local.AddrPort().Addr())
	}
	c := &connection{
		Conn: conn, all: &l.proxy.open, profile: own,
		client: remote.AddrPort(), server: local.AddrPort(), owned: map[*ticket.Holder]struct{}{},
	}
	var err error
	if c.uid, err = ticket.OwnerUID(c.client, c.server); err != nil {
		return nil, err
	}
	c.hasTicket = l.proxy.options.Tickets.Has
	c.unknown = c.uid != uint32(os.Getuid()) && !c.hasTicket(c.uid)
	if c.unknown && !c.all.strangers.spend(c.uid, 0, time.Now()) {
		return nil, errFlood
	}
	return c, l.proxy.open.enter(c)
}

// A connection is a client's.
type connection struct {
	net.Conn
	all            *connections
	profile        string // whose alone the listener or the address is, or empty
	client, server netip.AddrPort
	uid            uint32

	unknown    bool // its uid had no ticket at the start
	hasTicket  func(uid uint32) bool
	counted    atomic.Bool // its bytes are counted: a uid without a ticket sends them
	ticketless bool        // has shown no ticket; guarded by all
	timer      *time.Timer // closes it at ticketTimeout

	mu       sync.Mutex
	owned    map[*ticket.Holder]struct{} // whose process owns it; guarded by mu
	refusals int                         // since the last request that was let through; guarded by mu
}

// Close closes the connection.
func (c *connection) Close() error {
	c.all.leave(c)
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
