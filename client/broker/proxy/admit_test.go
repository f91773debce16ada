package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"holdfast/internal/brokerwire"
	"holdfast/internal/peer"
	"holdfast/test/role"
)

func ok(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "from the cluster") }

// protocols runs a test once with HTTP/1.1 and once with HTTP/2.
func protocols(t *testing.T, f func(t *testing.T, http2 bool)) {
	t.Run("HTTP/1.1", func(t *testing.T) { f(t, false) })
	t.Run("HTTP/2", func(t *testing.T) { f(t, true) })
}

func TestARequestWithATicket(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		r := newRig(t, ok)
		client, bearer := r.client("prod", http2), "Bearer "+r.ticket("prod")
		for range 3 {
			got := r.do(client, "GET", "/api", nil, "Authorization", bearer)
			if got.want(t, 200); got.body != "from the cluster" || (got.proto == 2) != http2 {
				t.Errorf("got %+v", got)
			}
		}
		if n := r.count("holdfast_broker_proxy_ownership_checks_total", "outcome", "owned"); n != 1 {
			t.Errorf("got %v ownership checks, want one for a connection and a ticket", n)
		}
		if n := r.count("holdfast_broker_proxy_requests_total", "profile", "prod", "outcome", "ok"); n != 3 {
			t.Errorf("got %v requests counted", n)
		}
		if n := r.count("holdfast_broker_proxy_overhead_seconds", "profile", "prod"); n != 3 {
			t.Errorf("got %v durations", n)
		}
		if who := r.pools.callers[0]; who.PID != int32(os.Getpid()) || who.UID != uint32(os.Geteuid()) {
			t.Errorf("got the caller %+v", who)
		}
	})
}

// A token that is no ticket is called what it is, and is not in the answer.
func TestTokenThatIsNoTicket(t *testing.T) {
	r := newRig(t, ok)
	for token, want := range map[string]string{
		"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl": "the request has a JWT, which is no ticket of holdfast",
		"hunter2":              "the request has a token, which is no ticket of holdfast",
		brokerwire.Placeholder: "no broker listened when the plugin asked for a ticket",
	} {
		got := r.do(r.client("prod", true), "GET", "/api/v1/pods", nil, "Authorization", "Bearer "+token)
		got.want(t, 401, want)
		if strings.Contains(got.body, token) {
			t.Errorf("the answer holds the token: %s", got.body)
		}
	}
}

func TestRequestsWithoutATicket(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		r := newRig(t, ok)
		client, good := r.client("prod", http2), "Bearer "+r.ticket("prod")
		r.do(client, "GET", "/api", nil, "Authorization", good).want(t, 200)
		cases := map[string][]string{
			"none":            nil,
			"basic":           {"Authorization", "Basic dTpw"},
			"scheme alone":    {"Authorization", "Bearer"},
			"empty":           {"Authorization", "Bearer "},
			"unknown":         {"Authorization", "Bearer holdfast-ticket-AAAA"},
			"two":             {"Authorization", good, "Authorization", good},
			"joined":          {"Authorization", good + ", " + good},
			"websocket":       {"Sec-WebSocket-Protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.QUFB"},
			"websocket, too":  {"Authorization", good, "Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.QUFB"},
			"in another case": {"Authorization", strings.ToUpper(good)},
		}
		for name, headers := range cases {
			t.Run(name, func(t *testing.T) {
				got := r.do(client, "GET", "/api", nil, headers...)
				got.want(t, 401, "")
				if strings.Contains(got.body, good[7:]) {
					t.Error("the answer holds the ticket")
				}
			})
		}
		// The same connection still takes a request that has one.
		r.do(client, "GET", "/api", nil, "Authorization", good).want(t, 200)
		r.do(client, "GET", "/api", nil, "Authorization", "bearer "+good[7:]).want(t, 200)
		if strings.Contains(r.log.String(), good[7:]) {
			t.Error("the log holds the ticket")
		}
	})
}

func TestOptionsNeedATicketToo(t *testing.T) {
	r := newRig(t, ok)
	request, err := http.NewRequest("OPTIONS", "https://"+r.address, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.URL.Opaque = "*"
	r.send(r.client("prod", false), request).want(t, 401, "no ticket")
}

func TestTheTicketIsForAnotherProfile(t *testing.T) {
	r := newRig(t, ok)
	own := r.serve("prod")
	prod, test := "Bearer "+r.ticket("prod"), "Bearer "+r.ticket("test")
	shared := r.address
	cases := []struct {
		name, address, sni, ticket string
		code                       int
		word                       string
	}{
		{"shared, right", shared, "prod", prod, 200, ""},
		{"shared, other name", shared, "test", prod, 401, "for the profile prod, the connection for another"},
		{"shared, other ticket", shared, "prod", test, 401, "for the profile test"},
		{"shared, unknown name", shared, "nobody", prod, 401, "for another"},
		{"shared, no name", shared, "", prod, 401, "tls-server-name: prod.holdfast.internal"},
		{"own, no name", own, "", prod, 200, ""},
		{"own, its name", own, "prod", prod, 200, ""},
		{"own, other name", own, "test", test, 401, "for another"},
		{"own, other name, its ticket", own, "test", prod, 401, "for another"},
		{"own, other ticket", own, "", test, 401, "for another"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r.address = c.address
			got := r.do(r.client(c.sni, true), "GET", "/api", nil, "Authorization", c.ticket)
			if c.word == "" {
				got.want(t, c.code)
				return
			}
			got.want(t, c.code, c.word)
		})
	}
}

// Two tickets on one HTTP/2 connection: each is judged on its own.
func TestTwoTicketsOnOneConnection(t *testing.T) {
	r := newRig(t, ok)
	client := r.client("prod", true)
	first := r.ticket("prod")
	r.do(client, "GET", "/api", nil, "Authorization", "Bearer "+first).want(t, 200)
	r.tickets.ForgetAll("prod")
	second := r.ticket("prod")
	r.do(client, "GET", "/api", nil, "Authorization", "Bearer "+second).want(t, 200)
	r.do(client, "GET", "/api", nil, "Authorization", "Bearer "+first).want(t, 401, "did not issue the ticket")
	r.do(client, "GET", "/api", nil, "Authorization", "Bearer "+r.ticket("test")).want(t, 401, "for the profile test")
	r.do(client, "GET", "/api", nil, "Authorization", "Bearer "+second).want(t, 200)
	if n := r.count("holdfast_broker_proxy_ownership_checks_total", "outcome", "owned"); n != 2 {
		t.Errorf("got %v ownership checks, want one for each ticket", n)
	}
}

func TestOwnershipIsRememberedForFewTickets(t *testing.T) {
	r := newRig(t, ok)
	client := r.client("prod", true)
	for range maxOwned + 1 {
		r.tickets.ForgetAll("")
		r.do(client, "GET", "/api", nil, "Authorization", "Bearer "+r.ticket("prod")).want(t, 200)
	}
	r.proxy.open.mu.Lock()
	defer r.proxy.open.mu.Unlock()
	for c := range r.proxy.open.open {
		if len(c.owned) > maxOwned {
			t.Errorf("got %d tickets remembered", len(c.owned))
		}
	}
}

func TestPolicyAndProfileAreAskedEachTime(t *testing.T) {
	r := newRig(t, ok)
	client, bearer := r.client("prod", true), "Bearer "+r.ticket("prod")
	r.do(client, "GET", "/api", nil, "Authorization", bearer).want(t, 200)
	r.denied.Store(true)
	r.do(client, "GET", "/api", nil, "Authorization", bearer).want(t, 403, "policy does not allow", "holdfast policy check")
	r.denied.Store(false)
	r.unknown.Store(true)
	r.do(client, "GET", "/api", nil, "Authorization", bearer).want(t, 503, "no profile prod any more", "holdfast status")
	r.unknown.Store(false)
	r.do(client, "GET", "/api", nil, "Authorization", bearer).want(t, 200)
}

// A body that is waited for keeps nothing open that was closed meanwhile.
func TestRequestsAreJudgedWhenTheyAreWhole(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*rig)
		code   int
	}{
		"nothing": {func(*rig) {}, http.StatusOK},
		"policy":  {func(r *rig) { r.denied.Store(true) }, http.StatusForbidden},
		"profile": {func(r *rig) { r.unknown.Store(true) }, http.StatusServiceUnavailable},
		"lock":    {func(r *rig) { r.tickets.ForgetAll("prod") }, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			var reached atomic.Bool
			r := newRig(t, func(w http.ResponseWriter, q *http.Request) { reached.Store(true); ok(w, q) })
			conn := r.dial("prod")
			fmt.Fprintf(conn, "POST /api HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 4\r\n\r\nab", r.ticket("prod"))
			role.Until(t, "the request was let through", func() bool {
				r.proxy.limit.mu.Lock()
				defer r.proxy.limit.mu.Unlock()
				return r.proxy.limit.all == 1
			})
			test.change(r)
			io.WriteString(conn, "cd")
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != test.code || reached.Load() != (test.code == http.StatusOK) {
				t.Errorf("got %d, and that it reached the cluster is %v; want %d", answer.StatusCode, reached.Load(), test.code)
			}
		})
	}
}

// Another process, with its own connection.
func TestOtherProcesses(t *testing.T) {
	role.NeedRoot(t)
	r := newRig(t, ok)
	stolen := r.ticket("prod")
	base := errand{Profile: "prod", Address: r.address, CA: r.ca}

	thief := base
	thief.Token = stolen
	got := thief.run(t)
	if got.Code != 401 || !strings.Contains(got.Body, "the process that the ticket was issued to does not own the connection") {
		t.Errorf("the same user's other process: got %+v", got)
	}
	thief.UID = 4321
	if got := thief.run(t); got.Code != 401 || !strings.Contains(got.Body, "belongs to another user") {
		t.Errorf("another user: got %+v", got)
	}

	for _, uid := range []int{0, 4321} {
		honest := base
		honest.UID, honest.Socket = uid, r.path
		var token string
		issued := make(chan error, 1)
		go func() {
			issued <- issueTo(r.socket, func(p *peer.Peer) (string, error) {
				got, err := r.tickets.Issue(p, "prod")
				token = got.Token
				return token, err
			})
		}()
		got := honest.run(t)
		if err := <-issued; err != nil || got.Code != 200 {
			t.Errorf("uid %d with its own ticket: got %+v, %v", uid, got, err)
		}
		// It has ended, and no other process can use its ticket.
		role.Until(t, "the process has ended", func() bool { _, err := r.tickets.Check(token); return err != nil })
		again := base
		again.Token = token
		if got := again.run(t); got.Code != 401 || !strings.Contains(got.Body, "has ended") {
			t.Errorf("after it ended: got %+v", got)
		}
	}
}

func FuzzBearer(f *testing.F) {
	seeds := [][2]string{
		{"Bearer holdfast-ticket-AAAA", ""}, {"bearer  x", "v5.channel.k8s.io"}, {"Basic dTpw", ""}, {"Bearer", ""},
		{"Bearer x", "a, base64url.bearer.authorization.k8s.io.QUFB"},
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, authorization, protocols string) {
		r := &http.Request{Header: http.Header{"Authorization": {authorization}, "Sec-Websocket-Protocol": {protocols}}}
		token, err := bearer(r)
		if (token == "") != (err != nil) {
			t.Errorf("got %q and %v", token, err)
		}
		if err == nil && (len(authorization) != len("Bearer ")+len(token) || strings.Contains(protocols, websocketToken)) {
			t.Errorf("took %q and %q", authorization, protocols)
		}
		r.Header.Add("Authorization", authorization)
		if token, err := bearer(r); err == nil {
			t.Errorf("took %q from two headers", token)
		}
	})
}
