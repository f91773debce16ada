package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/client/profile"
)

// The sizes of the buffers that answers pass through. A bulk answer is fast with
// large ones; watches hold theirs for hours, and hundreds are open at a time.
type (
	largeBuffers struct{ pool sync.Pool }
	smallBuffers struct{ pool sync.Pool }
	largeBuffer  [64 << 10]byte
	smallBuffer  [4 << 10]byte
)

func (b *largeBuffers) Get() []byte {
	if p, ok := b.pool.Get().(*largeBuffer); ok {
		return p[:]
	}
	return new(largeBuffer)[:]
}

func (b *largeBuffers) Put(p []byte) { b.pool.Put((*largeBuffer)(p)) }

func (b *smallBuffers) Get() []byte {
	if p, ok := b.pool.Get().(*smallBuffer); ok {
		return p[:]
	}
	return new(smallBuffer)[:]
}

func (b *smallBuffers) Put(p []byte) { b.pool.Put((*smallBuffer)(p)) }

// An exchange is one request on its way.
type exchange struct {
	*admission
	path    string // as the client asked for it
	upgrade bool
	watch   bool
	began   time.Time
	sent    bool   // on to the API server
	outcome string // set when the API server did not answer
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	e, _ := ctx.Value(exchangeKey{}).(*exchange)
	return e
}

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	c := connectionOf(r.Context())
	if c == nil || !p.running.begin() {
		writeStatus(w, r.URL.Path, ending())
		return
	}
	defer p.running.Done()
	admitted, refused := p.admit(c, r)
	tooMany := c.judged(refused == nil)
	if refused == nil {
		refused = forwardable(r, admitted.profile)
	}
	if refused == nil {
		refused = p.limit.enter(c.uid)
	}
	if refused != nil {
		p.refuse(w, r, c, refused, tooMany)
		return
	}
	defer p.limit.leave(c.uid)
	e := &exchange{admission: admitted, path: r.URL.Path, upgrade: upgrades(r), watch: !upgrades(r) && watches(r), began: began}
	defer p.finish(e)
	ctx := context.WithValue(r.Context(), exchangeKey{}, e)
	if e.upgrade || asksFor(r, "follow") {
		var done func()
		ctx, done = p.beginEndless(ctx, c, e, !watches(r))
		defer done()
	}
	forwarder := p.bulk
	if e.upgrade || streams(r.URL) {
		forwarder = p.stream
	}
	if e.upgrade {
		p.counts.upgrades.Add(1, e.profile.Name)
		defer p.counts.upgrades.Add(-1, e.profile.Name)
	}
	forwarder.ServeHTTP(w, r.WithContext(ctx))
}

// beginEndless cuts a request whose answer has no end when the proxy ends. Where the end
// is to wait for it, it is counted until done is called.
func (p *Proxy) beginEndless(ctx context.Context, c *connection, e *exchange, wait bool) (_ context.Context, done func()) {
	var one int64
	if wait {
		one = 1
	}
	p.endless.Add(one)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.ending, func() {
		cancel()
		if e.upgrade {
			c.Close() // the server does not track it any more
		}
	})
	return ctx, func() {
		stop()
		cancel()
		p.endless.Add(-one)
	}
}

// forwardable rejects requests that mean something else to a proxy, or would leave the
// path of the profile's server.
func forwardable(r *http.Request, prof *profile.Profile) *refusal {
	if r.Method == http.MethodConnect {
		return refuse(http.StatusMethodNotAllowed, "method", "it stands for a cluster's server, not for its proxy-url", "CONNECT is not for this proxy")
	}
	server, err := url.Parse(prof.Cluster.Server)
	if err == nil && strings.Trim(server.Path, "/") != "" && slices.Contains(strings.Split(r.URL.Path, "/"), "..") {
		return refuse(http.StatusBadRequest, "path", "ask for it without dots", "the path leaves that of the profile's server")
	}
	if protocol := r.Header.Get("Upgrade"); carriesRequests(protocol) {
		return refuse(http.StatusBadRequest, "upgrade", "HTTP/2 is there without one", "an upgrade to %.40q would carry requests that the proxy cannot check", protocol)
	}
	return nil
}

// carriesRequests reports whether a connection that is upgraded continues with HTTP,
// each of whose requests would need a ticket (h2c of RFC 7540, TLS of RFC 2817).
func carriesRequests(protocols string) bool {
	for protocol := range strings.SplitSeq(protocols, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(protocol), "/")
		switch strings.ToLower(name) {
		case "h2c", "h2", "http", "tls":
			return true
		}
	}
	return false
}

// refuse answers a request that is not admitted.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, c *connection, refused *refusal, tooMany bool) {
	p.counts.refused(refused)
	level := slog.LevelInfo
	if refused.code == http.StatusUnauthorized {
		level = slog.LevelDebug // any process can cause these: counting them is enough
	}
	p.log.Log(r.Context(), level, "request refused", "uid", c.uid, "remote", c.client.String(), "code", refused.code, "reason", refused.fault.Message)
	if tooMany {
		w.Header().Set("Connection", "close")
	}
	writeStatus(w, r.URL.Path, refused)
}

// finish counts an admitted request, also when the client has left, which makes the
// forwarder panic with [http.ErrAbortHandler].
func (p *Proxy) finish(e *exchange) {
	if e.outcome == "" {
		e.outcome = "ok"
	}
	p.counts.requests.Add(1, e.profile.Name, e.outcome)
}

// upgrades reports whether a request asks for another protocol on its connection.
func upgrades(r *http.Request) bool {
	if r.ProtoMajor != 1 || r.Header.Get("Upgrade") == "" {
		return false
	}
	for _, v := range r.Header["Connection"] {
		for word := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(word), "upgrade") {
				return true
			}
		}
	}
	return false
}

// streams reports whether a request's answer is likely to stay open. It only picks
// the size of a buffer.
func streams(u *url.URL) bool {
	return strings.Contains(u.RawQuery, "watch=") || strings.Contains(u.RawQuery, "follow=") || strings.Contains(u.Path, "/watch/")
}

// watches reports whether a request is a watch, whose client asks again when the answer
// ends. Behind the API server a query may mean anything.
func watches(r *http.Request) bool { return !relayed(r.URL.Path) && asksFor(r, "watch") }

// asksFor reports whether the query of a GET has an option that is true.
func asksFor(r *http.Request, option string) bool {
	if r.Method != http.MethodGet || r.URL.RawQuery == "" {
		return false
	}
	on, err := strconv.ParseBool(r.URL.Query().Get(option))
	return err == nil && on
}

// forwarder returns a reverse proxy with one size of buffers. Answers of unknown
// length are flushed as they come.
func (p *Proxy) forwarder(buffers httputil.BufferPool) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:       rewrite,
		Transport:     p,
		BufferPool:    buffers,
		FlushInterval: 50 * time.Millisecond,
		ErrorHandler:  p.failed,
		ErrorLog:      slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
}

// rewrite makes the request that the API server gets. It removes the ticket, and the
// headers in which an API server trusts a front proxy (X-Remote-User and its like): no
// client needs them, and they would be effective if the key were a front proxy's.
// Impersonate-User and its like stay: the API server checks that the key's user may.
func rewrite(r *httputil.ProxyRequest) {
	e := exchangeOf(r.In.Context())
	server, err := url.Parse(e.profile.Cluster.Server)
	if err != nil {
		server = &url.URL{Scheme: "https", Host: "invalid."} // profiles are checked when they are read
	}
	r.SetURL(server)
	r.Out.Host = server.Host
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.URL.Opaque = "" // of "GET https:x": it would be sent in place of the path
	r.Out.Header.Del("Authorization")
	for name := range r.Out.Header {
		if strings.HasPrefix(name, "X-Remote-") {
			r.Out.Header.Del(name)
		}
	}
}

// failed answers a request for which there is no answer of the API server.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	e := exchangeOf(r.Context())
	refused := explain(err)
	switch canceled := errors.Is(err, context.Canceled); {
	case canceled && p.ending.Err() != nil:
		refused = ending()
	case canceled && r.Context().Err() != nil:
		e.outcome = "canceled"
	}
	if e.outcome == "" {
		e.outcome = refused.outcome
		p.log.Info("request failed", "uid", e.who.UID, "pid", e.who.PID, "profile", e.profile.Name, "code", refused.code, "reason", refused.fault.Message)
	}
	writeStatus(w, e.path, refused)
}
