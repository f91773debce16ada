package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxReplay is how long a body may be that is kept for a second try.
const maxReplay = 64 << 10

// retryPause is how long 401s of one uid and profile are forwarded without a second try
// after one that did not help: each try costs the device a signature.
const retryPause = 10 * time.Second

// RoundTrip implements [http.RoundTripper] for the forwarders: it sends a request
// to the cluster of its profile. A 401 of the API server is about the client
// certificate, and says that the request was not processed. A fresh handshake uses a
// renewed certificate, so the request is sent once more where that is possible.
func (p *Proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	e := exchangeOf(r.Context())
	if e == nil {
		return nil, fmt.Errorf("proxy: a request that was not admitted")
	}
	again, err := replay(r)
	if err != nil {
		return nil, err
	}
	first := r
	if again != nil {
		first = again()
	}
	if again != nil && r.ContentLength > 0 { // the proxy had to wait for its body
		if refused := p.still(e.admission); refused != nil {
			return nil, refused
		}
	}
	p.begin(e)
	answer, err := p.send(e, first)
	if err != nil || answer.StatusCode != http.StatusUnauthorized || relayed(r.URL.Path) {
		return answer, err
	}
	key := owner{e.who.UID, e.profile.Name}
	if again == nil || e.profile.Proxy.NoPool && !e.upgrade || !p.retries.may(key, time.Now()) {
		warnUnauthorized(answer.Header, e.profile)
		return answer, nil
	}
	io.CopyN(io.Discard, answer.Body, maxReplay)
	answer.Body.Close()
	if p.retries.stale(key, e.began) {
		p.options.Pools.Retire(e.profile.Name, &e.who.UID)
	}
	if refused := p.still(e.admission); refused != nil {
		return nil, refused
	}
	second, err := p.send(e, again())
	helped := err == nil && second.StatusCode != http.StatusUnauthorized
	p.retries.ended(key, helped, time.Now())
	p.counts.retried(e.profile.Name, helped)
	if err == nil && !helped {
		warnUnauthorized(second.Header, e.profile)
	}
	return second, err
}

// begin observes the time from the request's arrival until it is forwarded.
func (p *Proxy) begin(e *exchange) {
	if e.sent {
		return
	}
	e.sent = true
	p.counts.overhead.Observe(time.Since(e.began).Seconds(), e.profile.Name)
}

func (p *Proxy) send(e *exchange, r *http.Request) (*http.Response, error) {
	if e.upgrade {
		return p.options.Pools.Upgrade(e.who, e.profile).RoundTrip(r)
	}
	transport := p.options.Pools.Transport(e.who, e.profile)
	if e.watch {
		return p.watch(transport, r)
	}
	return transport.RoundTrip(r)
}

// relayed reports whether the API server relays requests of this path to a pod, service
// or node. A 401 may come from there, after the request was processed.
func relayed(path string) bool {
	return strings.Contains(path, "/proxy/") || strings.HasSuffix(path, "/proxy")
}

// replay returns a function that makes a copy of the request each time, or nil when its
// body cannot be kept. A body that can be kept is read into memory.
func replay(r *http.Request) (func() *http.Request, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return func() *http.Request { return r.Clone(r.Context()) }, nil
	}
	if r.ContentLength <= 0 || r.ContentLength > maxReplay {
		return nil, nil
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, refuse(http.StatusBadRequest, "body", "try again", "the request's body ended early")
	}
	return func() *http.Request {
		whole := r.Clone(r.Context())
		whole.Body = io.NopCloser(bytes.NewReader(body))
		return whole
	}, nil
}

// owner identifies the connections that are retired.
type owner struct {
	uid     uint32
	profile string
}

// retries holds, by uid and profile, when connections were last retired, so that a
// hundred concurrent 401s cause one handshake, and when that last did not help.
type retries struct {
	mu      sync.Mutex
	retired map[owner]time.Time
	useless map[owner]time.Time
}

// may reports whether a second try makes sense.
func (t *retries) may(o owner, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, failed := t.useless[o]
	return !failed || now.Sub(last) >= retryPause
}

// stale reports whether the connections have to be retired: no other request has
// done so since this one began.
func (t *retries) stale(o owner, began time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.retired[o].Before(began) {
		return false
	}
	put(&t.retired, o, time.Now())
	return true
}

// ended notes whether a second try helped.
func (t *retries) ended(o owner, helped bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if helped {
		delete(t.useless, o)
		return
	}
	put(&t.useless, o, now)
}

// put bounds the map: a removed element costs a handshake at most.
func put(m *map[owner]time.Time, o owner, when time.Time) {
	if *m == nil || len(*m) >= 4096 {
		*m = map[owner]time.Time{}
	}
	(*m)[o] = when
}
