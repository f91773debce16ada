package upstream

import (
	"context"
	"errors"
	"net/http"
	"time"

	"holdfast/client/broker/ticket"
)

// transport sends the requests of one caller.
type transport struct {
	pools   *Pools
	caller  ticket.Process
	id      identity
	single  bool // a connection for each request, which is sent once
	upgrade bool
	afresh  bool // each connection takes a signature
}

var _ http.RoundTripper = (*transport)(nil)

// RoundTrip implements [http.RoundTripper]. It sends a request at most twice.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	begun := time.Now()
	for first := true; ; first = false {
		p, c, err := t.connection(r.Context())
		if err != nil {
			closeBody(r)
			return nil, err
		}
		worked := c.raw.answered.Load() || c.made.Before(begun)
		answer, err := c.send(p.address(r))
		if err == nil {
			return answer, nil
		}
		if first && !t.single && resendable(r, err, worked) {
			if again, ok := rewind(r); ok {
				r = again
				continue
			}
		}
		if r.Context().Err() == nil && !worked {
			err = c.refusal(err)
		}
		return nil, p.explain(err)
	}
}

// connection returns a connection with room for one request. When its pool is retired
// meanwhile, the request goes to the next pool. When its pool is dropped, the request
// fails: the reason to let it in may have ended.
func (t *transport) connection(ctx context.Context) (*pool, *conn, error) {
	for {
		p, err := t.pools.pool(t.id)
		if err != nil {
			return nil, nil, err
		}
		var r connected
		if t.single {
			r = t.own(ctx, p)
		} else {
			r.conn, r.err = p.acquire(ctx, t.caller)
		}
		switch {
		case r.err == nil:
			return p, r.conn, nil
		case !errors.Is(r.err, errRetired):
			return nil, nil, p.explain(r.err)
		case p.ctx.Err() != nil && t.pools.ctx.Err() == nil:
			return nil, nil, failure(Network, "the key was locked, the machine slept, or policy or profile changed: try again",
				"the connections of profile %s were cut", t.id.profile)
		}
	}
}

// own makes a connection for one request, which ends with the request's context
// or the pool's.
func (t *transport) own(ctx context.Context, p *pool) connected {
	p.mu.Lock()
	err, retired := p.full(), p.draining
	p.mu.Unlock()
	switch {
	case retired:
		return connected{err: errRetired}
	case err != nil:
		return connected{err: err}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	return p.connect(ctx, t.caller, wanted{upgrade: t.upgrade, afresh: t.afresh})
}

// address returns r as it is sent: to the profile's server.
func (p *pool) address(r *http.Request) *http.Request {
	own := *r
	url := *r.URL
	url.Scheme, url.Host = "https", p.target.address
	own.URL, own.Host = &url, p.target.host
	if p.id.cluster.DisableCompression && r.Header.Get("Accept-Encoding") != "" {
		own.Header = r.Header.Clone()
		own.Header.Del("Accept-Encoding")
	}
	return &own
}

// refusal returns why the server ended a connection on which it never answered.
func (c *conn) refusal(err error) error {
	if !c.first.pending() && c.first.err != nil {
		return c.first.err
	}
	return &refusedError{err}
}

// refusedError is the end of a connection on which the server never answered.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// resendable reports whether r may be sent again after err: the server has said that
// it did nothing, or a connection that had worked before took no more requests, or it
// was lost and the method may be repeated. Where the server never answered on the
// connection, it may have rejected the certificate: no further signature is spent.
func resendable(r *http.Request, err error, worked bool) bool {
	var refused streamError
	const refusedStream = 7 // RFC 9113, section 7
	switch {
	case r.Context().Err() != nil:
		return false
	case errors.As(err, &refused) && refused.Code == refusedStream:
		return true
	case !worked:
		return false
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return untaken(err)
}

// rewind returns r with its body from the start, when that can be had.
func rewind(r *http.Request) (*http.Request, bool) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, true
	}
	if r.GetBody == nil {
		return nil, false
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, false
	}
	again := *r
	again.Body = body
	return &again, true
}

// streamError has the shape of golang.org/x/net/http2.StreamError, which net/http's
// own turns into.
type streamError struct {
	StreamID uint32
	Code     errCode
	Cause    error
}

type errCode uint32

// Error implements error.
func (e streamError) Error() string { return "stream error" }

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}
