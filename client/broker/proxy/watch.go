package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// watch sends a request for a watch. When the proxy ends, so does the answer, complete:
// client-go then asks for the events after the last one that it has, at once and
// without an error. A broken answer would be an error to it, after which it waits.
func (p *Proxy) watch(transport http.RoundTripper, r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(p.ending, cancel)
	answer, err := transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	answer.Body = &events{ReadCloser: answer.Body, ending: p.ending, release: func() {
		stop()
		cancel()
	}}
	return answer, nil
}

// events is the body of a watch.
type events struct {
	io.ReadCloser
	ending  context.Context
	release func()
}

// Read reads events. The error that the end of the proxy causes is the end of the body.
func (e *events) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil && e.ending.Err() != nil && errors.Is(err, context.Canceled) {
		err = io.EOF
	}
	return n, err
}

// Close closes the body.
func (e *events) Close() error {
	defer e.release()
	return e.ReadCloser.Close()
}

// outcomeEnding is the outcome of requests that come too late.
const outcomeEnding = "ending"

// ending is the answer to them. client-go sends a request again where the answer has
// Retry-After.
func ending() *refusal {
	return refuse(http.StatusServiceUnavailable, outcomeEnding, "try again", "the broker is ending")
}
