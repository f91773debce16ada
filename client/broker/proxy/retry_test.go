package proxy

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// once is a cluster that answers the first requests with 401.
type once struct {
	mu     sync.Mutex
	left   int
	bodies []string
}

func (o *once) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bodies = append(o.bodies, r.Method+" "+string(body))
	if o.left > 0 {
		o.left--
		w.WriteHeader(401)
		return
	}
	w.WriteHeader(201)
}

func TestA401IsRetriedOnce(t *testing.T) {
	long, longer := strings.Repeat("x", maxReplay), strings.Repeat("x", maxReplay+1)
	cases := []struct {
		name, method, path string
		body               io.Reader
		answers            int // 401s before another
		sent, retired      int
		code               int
	}{
		{"get", "GET", "/api", nil, 1, 2, 1, 201},
		{"post", "POST", "/api", strings.NewReader("hello"), 1, 2, 1, 201},
		{"post of what is kept at most", "POST", "/api", strings.NewReader(long), 1, 2, 1, 201},
		{"post of more", "POST", "/api", strings.NewReader(longer), 1, 1, 0, 401},
		{"post of unknown length", "POST", "/api", io.MultiReader(strings.NewReader("hello")), 1, 1, 0, 401},
		{"twice", "GET", "/api", nil, 2, 2, 1, 401},
		{"no 401", "GET", "/api", nil, 0, 1, 0, 201},
		{"of a service", "POST", "/api/v1/namespaces/a/services/b/proxy/login", strings.NewReader("hello"), 1, 1, 0, 401},
		{"of a node", "GET", "/api/v1/nodes/b/proxy", nil, 1, 1, 0, 401},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			server := &once{left: c.answers}
			r := newRig(t, server.ServeHTTP)
			want := ""
			if c.body != nil {
				text, _ := io.ReadAll(c.body)
				want = string(text)
				c.body = bytes.NewReader(text)
				if strings.Contains(c.name, "unknown") {
					c.body = io.MultiReader(c.body)
				}
			}
			got := r.do(r.client("prod", true), c.method, c.path, c.body, "Authorization", "Bearer "+r.ticket("prod"))
			if got.code != c.code || len(server.bodies) != c.sent || r.pools.retired != c.retired {
				t.Errorf("got %d after %d requests, %d retirements", got.code, len(server.bodies), r.pools.retired)
			}
			// The warning that kubectl also prints: only the broker knows which certificate it was.
			warned := strings.Contains(got.header.Get("Warning"), "does not accept the certificate of key ")
			if want := c.code == 401 && !relayed(c.path); warned != want {
				t.Errorf("the warning is %q", got.header.Get("Warning"))
			}
			for _, body := range server.bodies {
				if body != c.method+" "+want {
					t.Errorf("the cluster got %d bytes, want %d", len(body), len(want))
				}
			}
		})
	}
}

// A hundred requests that get a 401 at a time make one fresh handshake.
func TestManyUnauthorizedAtATime(t *testing.T) {
	const n = 20
	var gate sync.WaitGroup
	gate.Add(n)
	var mu sync.Mutex
	seen := 0
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
		mu.Lock()
		seen++
		first := seen <= n
		mu.Unlock()
		if first {
			gate.Done()
			gate.Wait()
			w.WriteHeader(401)
		}
	})
	client, bearer := r.client("prod", true), "Bearer "+r.ticket("prod")
	var all sync.WaitGroup
	for range n {
		all.Go(func() { r.do(client, "GET", "/api", nil, "Authorization", bearer).want(t, 200) })
	}
	all.Wait()
	if r.pools.retired != 1 {
		t.Errorf("got %d retirements, want 1", r.pools.retired)
	}
	if got := r.count("holdfast_broker_proxy_unauthorized_retries_total", "profile", "prod", "outcome", "helped"); got != n {
		t.Errorf("got %v retries counted", got)
	}
}

// After a second try that did not help, further 401s are handed on for a while.
func TestUselessRetriesAreFew(t *testing.T) {
	server := &once{left: 1 << 30}
	r := newRig(t, server.ServeHTTP)
	client, bearer := r.client("prod", true), "Bearer "+r.ticket("prod")
	for range 10 {
		r.do(client, "GET", "/api", nil, "Authorization", bearer).want(t, 401)
	}
	if r.pools.retired != 1 || len(server.bodies) != 11 {
		t.Errorf("got %d retirements, %d requests, want 1 and 11", r.pools.retired, len(server.bodies))
	}
}

func TestRetries(t *testing.T) {
	var all retries
	a, b, now := owner{1, "a"}, owner{2, "a"}, time.Now()
	all.ended(a, false, now)
	if all.may(a, now.Add(retryPause-1)) || !all.may(a, now.Add(retryPause)) || !all.may(b, now) {
		t.Error("useless retries are not held back, or for too long")
	}
	all.ended(a, true, now)
	if !all.may(a, now) {
		t.Error("one that helped does not count")
	}
	if !all.stale(a, now) || all.stale(a, now) || !all.stale(b, now) || !all.stale(a, time.Now().Add(time.Second)) {
		t.Error("connections are not retired once")
	}
	for i := range 5000 {
		all.ended(owner{uint32(i), "a"}, false, now)
	}
	if len(all.useless) > 4096 {
		t.Errorf("%d are remembered", len(all.useless))
	}
}

func TestABodyThatEndsEarly(t *testing.T) {
	r := newRig(t, ok)
	conn := r.dial("prod")
	io.WriteString(conn, "POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nAuthorization: Bearer "+r.ticket("prod")+"\r\n\r\nhalf")
	conn.CloseWrite()
	text, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(text), "400 Bad Request") {
		t.Errorf("got %q, %v", text, err)
	}
	if len(r.pools.callers) != 0 {
		t.Error("half a body was sent on")
	}
}
