// Package client asks a holdfast agent for signatures: a [Key] is a
// crypto.Signer and crypto.MessageSigner whose private half stays in a TPM or a
// security key, and fits crypto/tls, net/http and crypto/x509 as it is.
//
// Start at [Dial] and [Client.Key]; then [Key.ConfigureTLS] for clients and
// servers that live long, [Key.TLSCertificate] for one connection, and
// [Key.CertificateRequest] to get a certificate in the first place. The other
// methods of [Client] are the agent's, one for one; the interface file
// io.holdfast.Agent.varlink says what each does.
//
// A key signs whole messages of its one purpose and never a digest, so
// [Key.Sign] always fails: libraries that hash before they sign cannot use it.
//
// The package keeps a private key from being copied, not from being used:
// whatever runs as a user whom the agent's policy allows can ask for signatures
// too. It checks that nobody but this user or root could have put the agent's
// socket where it is, and trusts what answers there.
package client

import (
	"context"
	"errors"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/dial"
	"holdfast/internal/varlink"
)

// Options says how to reach an agent. The zero value means the defaults.
type Options struct {
	// Socket is the path of the agent's socket. When it is empty, the first of
	// [Sockets] that exists is used.
	Socket string

	// Timeout is how long one call may take whose context has no deadline of its
	// own. Zero means as long as it takes. Signatures have the timeout of their
	// [Key].
	Timeout time.Duration

	// Touch, when it is not nil, is called from another goroutine when a signature
	// has waited for about a second for somebody to touch the key.
	Touch func(agentwire.Key)
}

// Client is a connection to an agent. It opens further connections when calls
// overlap, keeps a few of them, and replaces those that were lost. Its methods
// are safe for concurrent use.
type Client struct {
	socket  string
	timeout time.Duration
	touch   func(agentwire.Key)
	pool    *pool
}

// Dial connects to an agent; nil options mean the defaults. Before it connects
// it checks that only this user or root can replace the socket. The error is an
// [*UnreachableError], which names the next step, unless ctx ended first.
func Dial(ctx context.Context, o *Options) (*Client, error) {
	c := New(o)
	conn, err := c.pool.get(ctx, false)
	if err != nil {
		return nil, err
	}
	c.pool.put(conn, true)
	return c, nil
}

// New is [Dial] without the connection: the first call makes it. It is for
// programs that start whether or not there is an agent.
func New(o *Options) *Client {
	if o == nil {
		o = &Options{}
	}
	path := o.Socket
	if path == "" {
		path = dial.Agent().Path()
	}
	c := &Client{socket: path, timeout: o.Timeout, touch: o.Touch}
	c.pool = newPool(func(ctx context.Context) (*varlink.Conn, error) { return dial.Agent().Connect(ctx, path) })
	return c
}

// Socket returns the path of the socket that the client uses.
func (c *Client) Socket() string { return c.socket }

// Close closes the client's connections, those in use when their call ends.
// Calls after Close fail.
func (c *Client) Close() error {
	c.pool.close()
	return nil
}

// repeat says what a call may do about a lost connection.
type repeat int

const (
	repeatable repeat = iota // made again once: the agent does the same thing twice or recognises the request
	onceOnly                 // made on a fresh connection, so that it is not lost to an idle timeout, and again only when nobody has read it
)

// call calls method, and once more when the connection is lost and r allows it, or
// was closed unread, so that nothing can have been done. A connection that closes twice before the request was read is a refusal: the
// agent closes on callers whom its policy does not name at all.
func (c *Client) call(ctx context.Context, r repeat, method string, in, out any) error {
	own, cancel := c.bounded(ctx)
	defer cancel()
	err := c.try(own, r == onceOnly, method, in, out)
	again := refused(err) || r == repeatable && errors.Is(err, varlink.ErrConnectionLost)
	if again && own.Err() == nil {
		err = c.try(own, true, method, in, out)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return c.silent(err)
	}
	return c.explain(ctx, err)
}

// bounded returns ctx with the client's timeout, unless it has a deadline.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has || c.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.timeout)
}

func (c *Client) try(ctx context.Context, fresh bool, method string, in, out any) error {
	conn, err := c.pool.get(ctx, fresh)
	if err != nil {
		return err
	}
	err = conn.Call(ctx, method, in, out)
	var answered *varlink.Error
	c.pool.put(conn, err == nil || errors.As(err, &answered))
	return err
}
