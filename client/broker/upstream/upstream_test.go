package upstream_test

import (
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/agentwire"
)

// together sends n requests at once and returns the answers.
func together(t *testing.T, tr http.RoundTripper, n int) []string {
	t.Helper()
	answers := make([]string, n)
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		group.Go(func() {
			<-start
			text, err := send(tr, "GET", "/who", nil)
			if err != nil {
				text = "error: " + err.Error()
			}
			answers[i] = text
		})
	}
	close(start)
	group.Wait()
	return answers
}

func TestOneSignatureForAll(t *testing.T) {
	r := newRig(t, nil)
	for i, got := range together(t, r.transport(), 100) {
		if !strings.HasPrefix(got, "alice HTTP/2.0 ") {
			t.Fatalf("request %d: %s", i, got)
		}
	}
	if n := r.signatures(t); n != 1 || r.server.accepted() != 1 {
		t.Errorf("%d signatures, %d connections, want 1 each", n, r.server.accepted())
	}
	r.connections(t, 1)
}

// A server that speaks HTTP/1.1 alone takes a request at a time on a connection:
// there are more of them, and they are used again.
func TestHTTP1(t *testing.T) {
	r := newRig(t, func(s *server) { s.EnableHTTP2 = false })
	for i, got := range together(t, r.transport(), 50) {
		if !strings.HasPrefix(got, "alice HTTP/1.1 ") {
			t.Fatalf("request %d: %s", i, got)
		}
	}
	before := r.signatures(t)
	for range 20 {
		get(t, r.transport(), "/who")
	}
	// Some handshakes may have been under way for requests that found another.
	if after := r.signatures(t); after-before > 8 || after > 58 {
		t.Errorf("%d signatures for 50 requests at once and %d for 20 after them", before, after-before)
	}
}

// A request that does not fit on one connection gets another.
func TestMoreStreamsThanOneConnectionTakes(t *testing.T) {
	r := newRig(t, func(s *server) { s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 10} })
	var watches []*watching
	for range 35 {
		watches = append(watches, watch(t, r.transport()))
	}
	if n := r.signatures(t); n != 4 {
		t.Errorf("%d signatures for 35 watches, 10 on a connection", n)
	}
	close(r.server.stop)
	for _, w := range watches {
		w.expect(t, "end\n")
	}
}

// A server says late that it allows fewer requests at a time than a client may
// assume. Until then one goes alone: what comes too early is refused, or worse,
// makes net/http wait for ever.
func TestFewerStreamsThanAssumed(t *testing.T) {
	r := newRig(t, func(s *server) { s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 5} })
	r.profile.Cluster.Server = listenSlowly(t, strings.TrimPrefix(r.server.URL, "https://"), 0, 30*time.Millisecond)
	var sent atomic.Int32
	counting := counted{r.transport(), &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }}}
	for i, got := range together(t, counting, 90) {
		if !strings.HasPrefix(got, "alice HTTP/2.0 ") {
			t.Fatalf("request %d: %s", i, got)
		}
	}
	if n := sent.Load(); n != 90 {
		t.Errorf("%d requests were sent for 90", n)
	}
}

// counted traces requests.
type counted struct {
	http.RoundTripper
	trace *httptrace.ClientTrace
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), c.trace)))
}

func TestUIDsShareNothing(t *testing.T) {
	r := newRig(t, nil)
	other := me()
	other.UID++
	get(t, r.transport(), "/who")
	get(t, r.pools.Transport(other, r.profile), "/who")
	if n := r.signatures(t); n != 2 {
		t.Errorf("%d signatures for two uids", n)
	}
}

// A profile that changed never uses the connections of what it was.
func TestChangedProfile(t *testing.T) {
	r := newRig(t, nil)
	r.key(t, "bob")
	get(t, r.transport(), "/who")
	changed := *r.profile
	changed.Key = "bob"
	if got := get(t, r.pools.Transport(me(), &changed), "/who"); !strings.HasPrefix(got, "bob ") {
		t.Errorf("after the key changed: %s", got)
	}
	changed = *r.profile
	changed.Cluster.TLSServerName = "elsewhere"
	if _, err := send(r.pools.Transport(me(), &changed), "GET", "/who", nil); err == nil {
		t.Error("another server name went over the old connection")
	}
}

func TestNoPool(t *testing.T) {
	r := newRig(t, nil)
	r.profile.Proxy.NoPool = true
	for range 3 {
		get(t, r.transport(), "/who")
	}
	if n := r.signatures(t); n != 3 {
		t.Errorf("%d signatures for 3 requests", n)
	}
	r.connections(t, 0)
}

func TestIdleConnectionsEnd(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		t.Run(fmt.Sprint(http2), func(t *testing.T) {
			r := newRig(t, func(s *server) { s.EnableHTTP2 = http2 })
			r.profile.Proxy.IdleTimeout = 20 * time.Millisecond
			w := watch(t, r.transport())
			close(r.server.stop)
			w.expect(t, "end\n")
			w.body.Close()
			r.connections(t, 0)
			get(t, r.transport(), "/who")
		})
	}
}

func TestIdleTimeoutSparesRequests(t *testing.T) {
	r := newRig(t, nil)
	r.profile.Proxy.IdleTimeout = time.Millisecond
	w := watch(t, r.transport())
	for begun := time.Now(); time.Since(begun) < 50*time.Millisecond; {
		get(t, r.transport(), "/who") // each ends, and the connection with it if the watch did not count
	}
	close(r.server.stop)
	w.expect(t, "end\n")
}

func TestMaxAge(t *testing.T) {
	r := newRig(t, nil)
	r.profile.Proxy.MaxAge = 50 * time.Millisecond
	w := watch(t, r.transport())
	eventually(t, func() string {
		get(t, r.transport(), "/who")
		if r.signatures(t) < 2 {
			return "no fresh handshake"
		}
		return ""
	})
	close(r.server.stop)
	w.expect(t, "end\n") // which is longer than the age of its connection
}

func TestRetire(t *testing.T) {
	r := newRig(t, nil)
	w, u := watch(t, r.transport()), upgraded(t, r.pools.Upgrade(me(), r.profile))
	uid := me().UID
	other := uid + 1
	r.pools.Retire("prod", &other)
	get(t, r.transport(), "/who")
	if n := r.signatures(t); n != 2 {
		t.Fatalf("%d signatures, want those of a connection and an upgrade", n)
	}
	r.pools.Retire("prod", &uid)
	get(t, r.transport(), "/who")
	if n := r.signatures(t); n != 3 {
		t.Errorf("%d signatures after Retire, want 3", n)
	}
	u.say(t, "still here")
	close(r.server.stop)
	w.expect(t, "end\n")
	w.body.Close()
	u.body.Close()
	r.connections(t, 1)
	if current, all := r.pools.Len(); current != 1 || all != 1 {
		t.Errorf("%d pools in use, %d in all", current, all)
	}
}

// A connection ends with the certificate that signed in on it, whatever runs.
func TestCertificateExpires(t *testing.T) {
	r := newRig(t, nil)
	r.agent.Change("alice", func(k *agentwire.Key) {
		k.Chain = [][]byte{r.expiring(t, k.PublicKey, time.Now().Add(2*time.Second))}
	})
	w := watch(t, r.transport())
	r.pools.Retire("prod", nil)
	if _, err := w.reader.ReadString('\n'); err == nil {
		t.Error("the watch ended in good order")
	}
	r.connections(t, 0)
}

func TestDrop(t *testing.T) {
	r := newRig(t, nil)
	w, u := watch(t, r.transport()), upgraded(t, r.pools.Upgrade(me(), r.profile))
	r.pools.Retire("prod", nil) // what is on its way out is dropped too
	again := watch(t, r.transport())
	r.pools.Drop("staging")
	u.say(t, "still here")
	r.pools.Drop("prod")
	for i, each := range []*watching{w, u, again} {
		if got, err := each.reader.ReadString('\n'); err == nil {
			t.Errorf("%d goes on: %q", i, got)
		}
	}
	r.connections(t, 0)
	get(t, r.transport(), "/who")
}

func TestUpgradeResumesSessions(t *testing.T) {
	r := newRig(t, nil)
	for range 3 {
		u := upgraded(t, r.pools.Upgrade(me(), r.profile))
		u.body.Close()
	}
	if n := r.signatures(t); n != 1 {
		t.Errorf("%d signatures for 3 upgrades", n)
	}
	r.connections(t, 0)
	r.pools.Drop("prod")
	upgraded(t, r.pools.Upgrade(me(), r.profile))
	if n := r.signatures(t); n != 2 {
		t.Errorf("%d signatures after Drop: a session outlived it", n)
	}
}

// Where each request takes a signature, upgrades do too: no session stands in for
// the user.
func TestUpgradeSignsEachTime(t *testing.T) {
	for name, change := range map[string]func(*rig){
		"no-pool":               func(r *rig) { r.profile.Proxy.NoPool = true },
		"a person for each one": func(r *rig) { r.alone = true },
	} {
		r := newRig(t, nil)
		change(r)
		for range 3 {
			upgraded(t, r.pools.Upgrade(me(), r.profile)).body.Close()
		}
		if n := r.signatures(t); n != 3 {
			t.Errorf("%s: %d signatures for 3 upgrades", name, n)
		}
	}
}

// A request that turns out to be no upgrade leaves no connection.
func TestUpgradeRefused(t *testing.T) {
	r := newRig(t, nil)
	text, err := send(r.pools.Upgrade(me(), r.profile), "POST", "/upgrade", nil)
	if err != nil || !strings.Contains(text, "no upgrade over HTTP/1.1") {
		t.Errorf("got %q, %v", text, err)
	}
	r.connections(t, 0)
}

func TestWhatIsSent(t *testing.T) {
	r := newRig(t, nil)
	host := strings.TrimPrefix(r.server.URL, "https://")
	if got, want := get(t, r.transport(), "/who?a=b"), "alice HTTP/2.0 "+host+` "" "a=b"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	ask := func(disabled bool) string {
		r.profile.Cluster.DisableCompression = disabled
		request, _ := http.NewRequest("GET", "https://x/who", nil)
		request.Header.Set("Accept-Encoding", "gzip")
		text, err := read(r.transport().RoundTrip(request))
		if err != nil || request.Header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("%v, and the request has %v", err, request.Header)
		}
		return text
	}
	if got := ask(false); !strings.Contains(got, `"gzip"`) {
		t.Errorf("the client's Accept-Encoding is gone: %s", got)
	}
	if got := ask(true); strings.Contains(got, `"gzip"`) {
		t.Errorf("disable-compression sent %s", got)
	}
}
