// Package client asks a holdfast agent for signatures: a [Key] is a
// crypto.Signer and crypto.MessageSigner whose private half stays in a TPM or a
// security key, and fits crypto/tls, net/http and crypto/x509 as it is.
//
// Start at [Dial] and [Client.Key]; then [Key.ConfigureClient] or
// [Key.ConfigureServer] for a program that runs for long, [Key.TLSCertificate] for
// one connection, and [Key.CertificateRequest] to get a first certificate. The
// other methods of [Client] are the agent's, one for one; the interface file
// io.holdfast.Agent.varlink says what each does.
//
// A key signs whole messages of its one purpose and never a digest, so [Key.Sign]
// always fails: a library that hashes before it signs cannot use a key.
//
// A private key cannot be copied, but it can be used: every program of a user whom
// the agent's policy allows can ask for signatures. The package checks that only
// this user or root can have placed the agent's socket, and trusts the program that
// answers there.
package client

import (
	"context"
	"errors"
	"time"

	"holdfast/internal/dial"
	"holdfast/internal/varlink"
)

// Options says how to reach an agent. The zero value means the defaults.
type Options struct {
	// Socket is the path of the agent's socket. When it is empty, the first of
	// [Sockets] that exists is used.
	Socket string

	// Timeout bounds a call whose context has no deadline. Zero means no bound.
	// Signatures have the timeout of their [Key].
	Timeout time.Duration

	// Touch, when it is not nil, is called from another goroutine when a signature
	// has waited for a touch for about a second.
	Touch func(KeyInfo)

	// Waiting, when it is not nil, is called from another goroutine when the agent has
	// not answered a call for three seconds, and every five seconds from then on. It is
	// not called while the agent may be asking a user for a PIN or a confirmation.
	Waiting func(waited time.Duration)
}

// Client talks to an agent. It opens a connection for each call that overlaps
// another, keeps a few of them, and replaces lost ones. Its methods are safe for
// concurrent use.
type Client struct {
	socket  string
	timeout time.Duration
	touch   func(KeyInfo)
	waiting func(time.Duration)
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

// New is [Dial] without the connection, which the first call makes. It is for
// programs that start before their agent.
func New(o *Options) *Client {
	if o == nil {
		o = &Options{}
	}
	path := o.Socket
	if path == "" {
		path = dial.Agent().Path()
	}
	c := &Client{socket: path, timeout: o.Timeout, touch: o.Touch, waiting: o.Waiting}
	c.pool = newPool(func(ctx context.Context) (*varlink.Conn, error) { return dial.Agent().Connect(ctx, path) })
	return c
}

// Socket returns the path of the socket that the client uses.
func (c *Client) Socket() string { return c.socket }

// Close closes the idle connections, and each other one when its call ends. Calls
// after Close fail.
func (c *Client) Close() error {
	c.pool.close()
	return nil
}

// repeat says what a call does when its connection is lost.
type repeat int

const (
	repeatable repeat = iota // retry once: the call is idempotent, or the agent knows the request by its id
	onceOnly                 // use a fresh connection, which no idle timeout can close, and retry only when the agent has not read the request
)

// call is [Client.exchange] with a report while the agent does not answer.
func (c *Client) call(ctx context.Context, r repeat, method string, in, out any) error {
	defer c.reportWait()()
	return c.exchange(ctx, r, method, in, out)
}

// exchange calls method. It retries once when the connection is lost and r allows it, or
// when the agent closed the connection before it read the request, so that nothing
// can have been done. An agent that does so twice refuses the caller: it closes the
// connections of callers that no rule of its policy names.
func (c *Client) exchange(ctx context.Context, r repeat, method string, in, out any) error {
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

// bounded returns ctx with the client's timeout, unless ctx has a deadline.
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
