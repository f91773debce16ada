package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"time"
)

// untaken reports whether err says that an HTTP/2 server cannot have acted on the
// request: its GOAWAY left the request out (RFC 9113, section 6.8), or the
// connection took no more requests when this one came.
func untaken(err error) bool {
	return slices.ContainsFunc(goAwayErrors(), func(each error) bool { return errors.Is(err, each) })
}

// goAwayErrors returns net/http's two values for that. It repeats such requests in
// [http.Transport.RoundTrip] and exports neither value, so they come from a
// connection in memory, whose first request meets a GOAWAY and whose second comes
// after it. Where that fails, no request counts as untaken.
var goAwayErrors = sync.OnceValue(func() []error {
	client, server := net.Pipe()
	defer server.Close()
	go io.Copy(io.Discard, server)
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil },
		Protocols:   new(http.Protocols),
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	conn, err := transport.NewClientConn(context.Background(), "http", "goaway.invalid:80")
	if err != nil {
		client.Close()
		return nil
	}
	defer conn.Close()
	const frames = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + // SETTINGS, none
		"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00" // GOAWAY, last stream 0, NO_ERROR
	goAway := &httptrace.ClientTrace{WroteHeaders: func() { go io.WriteString(server, frames) }}
	ctx, cancel := context.WithTimeout(httptrace.WithClientTrace(context.Background(), goAway), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://goaway.invalid/", nil)
	if err != nil {
		return nil
	}
	_, first := conn.RoundTrip(request)
	_, second := conn.RoundTrip(request)
	if ctx.Err() != nil {
		return nil
	}
	return []error{first, second}
})
