package client

import (
	"context"
)

type behalfKey struct{}

// OnBehalfOf returns a context under which tls-client keys tell the agent that they
// sign for the process p. It is for brokers: programs that sign in for others. The
// agent records the process as reported, not as verified, and its policy may require
// a report.
//
// A key has its context from [Key.WithContext]. With a tls.Config that the key
// configured it has the handshake's: that of tls.Conn.HandshakeContext, or of the HTTP
// request for which an http.Transport dials. A connection that is reused was signed
// for its first request alone.
func OnBehalfOf(ctx context.Context, p Reported) context.Context {
	return context.WithValue(ctx, behalfKey{}, p)
}

// behalf returns the process that ctx reports, or nil.
func behalf(ctx context.Context) *Reported {
	p, ok := ctx.Value(behalfKey{}).(Reported)
	if !ok {
		return nil
	}
	return &p
}
