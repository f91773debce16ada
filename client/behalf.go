package client

import (
	"context"

	"holdfast/internal/agentwire"
)

type behalfKey struct{}

// OnBehalfOf returns a context under which tls-client keys tell the agent that
// they sign for the process who, which is for brokers: programs that sign in for
// others. The agent records the process as reported by this program, and its
// policy may demand one; it believes no more for it.
//
// A key learns its context from [Key.WithContext], and when [Key.ConfigureTLS] has
// set up the connection, from the handshake: that of tls.Conn.HandshakeContext, or
// of the HTTP request for which a http.Transport dials. A connection that is kept
// for further requests was signed for the first one alone.
func OnBehalfOf(ctx context.Context, who agentwire.Reported) context.Context {
	return context.WithValue(ctx, behalfKey{}, who)
}

// behalf returns whom ctx reports, or nil.
func behalf(ctx context.Context) *agentwire.Reported {
	who, ok := ctx.Value(behalfKey{}).(agentwire.Reported)
	if !ok {
		return nil
	}
	return &who
}
