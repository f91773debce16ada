package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"holdfast/client/broker/upstream"
	"holdfast/internal/fault"
	"holdfast/test/pace"
	"holdfast/test/role"
)

// TestWhatTheClusterGets compares what arrives with what was sent.
func TestWhatTheClusterGets(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		var got *http.Request
		r := newRig(t, func(w http.ResponseWriter, request *http.Request) { got = request })
		token := r.ticket("prod")
		path := "/api/v1/namespaces/a%2Fb/pods/x?labelSelector=a%3Db;c&watch=0&x=%zz"
		sent := []string{
			"Authorization", "Bearer " + token, "Impersonate-User", "bob", "Impersonate-Group", "dev", "Impersonate-Extra-Scopes", "x",
			"User-Agent", "kubectl/v1.36.3", "Accept", "application/json;as=Table", "Kubectl-Command", "kubectl get",
			"X-Remote-User", "admin", "X-Remote-Group", "system:masters", "X-Remote-Extra-A", "b", "X-Remote-Uid", "0",
			"Proxy-Authorization", "Basic x", "Accept-Encoding", "gzip", "X-Forwarded-For", "1.2.3.4", "Forwarded", "for=1.2.3.4",
		}
		if !http2 {
			sent = append(sent, "Connection", "X-Hop", "X-Hop", "1", "Keep-Alive", "1")
		}
		r.do(r.client("prod", http2), "PATCH", path, strings.NewReader("body"), sent...).want(t, 200)
		if got.Method != "PATCH" || got.RequestURI != path || got.Host != "cluster.example:6443" {
			t.Errorf("got %s %s at %s", got.Method, got.RequestURI, got.Host)
		}
		want := http.Header{
			"Impersonate-User": {"bob"}, "Impersonate-Group": {"dev"}, "Impersonate-Extra-Scopes": {"x"}, "User-Agent": {"kubectl/v1.36.3"},
			"Accept": {"application/json;as=Table"}, "Kubectl-Command": {"kubectl get"}, "Accept-Encoding": {"gzip"}, "Content-Length": {"4"},
		}
		if fmt.Sprint(got.Header) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got.Header, want)
		}
	})
}

func TestThePathOfTheServer(t *testing.T) {
	var got string
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) { got = request.RequestURI })
	r.base = "/k8s/clusters/c-1"
	client, bearer := r.client("prod", true), "Bearer "+r.ticket("prod")
	r.do(client, "GET", "/api/v1?a=b", nil, "Authorization", bearer).want(t, 200)
	if want := "/k8s/clusters/c-1/api/v1?a=b"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, path := range []string{"/../../x", "/api/%2e%2e/%2E%2e/x", "/api/.."} {
		r.do(client, "GET", path, nil, "Authorization", bearer).want(t, 400, "leaves")
	}
}

// A request in absolute form, as to a proxy, still goes to the profile's server
// with no other identity than the profile's.
func TestAbsoluteForm(t *testing.T) {
	seen := make(chan *http.Request, 1)
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) { seen <- request })
	r.base = "/base"
	for sent, want := range map[string]string{"http://user:word@evil.example/api": "/base/api", "https:evil": "/base/"} {
		conn := r.dial("prod")
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer %s\r\n\r\n", sent, r.ticket("prod"))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || response.StatusCode != 200 {
			t.Fatalf("%s: got %v, %v", sent, response, err)
		}
		if got := <-seen; got.Host != "cluster.example:6443" || got.Header.Get("Authorization") != "" || got.RequestURI != want {
			t.Errorf("%s: got %s at %s with %v", sent, got.RequestURI, got.Host, got.Header)
		}
	}
}

func TestConnectIsRefused(t *testing.T) {
	r := newRig(t, ok)
	conn := r.dial("prod")
	fmt.Fprintf(conn, "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\nAuthorization: Bearer %s\r\n\r\n", r.ticket("prod"))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != 405 {
		t.Errorf("got %v, %v, want 405", response, err)
	}
}

func TestWhatTheClientGets(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Warning", `299 - "old"`)
		w.Header().Set("Audit-Id", "1")
		w.Header().Set("Trailer", "X-End")
		w.WriteHeader(422)
		io.WriteString(w, "no")
		w.Header().Set("X-End", "2")
	})
	got := r.do(r.client("prod", true), "GET", "/api", nil, "Authorization", "Bearer "+r.ticket("prod"))
	if got.code != 422 || got.body != "no" || got.header.Get("Warning") == "" || got.header.Get("Audit-Id") != "1" {
		t.Errorf("got %+v", got)
	}
}

// TestWatchesArriveAtOnce sends one event at a time, each only when the one before
// has arrived.
func TestWatchesArriveAtOnce(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		next := make(chan struct{})
		r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
			for range 5 {
				fmt.Fprintln(w, `{"type":"ADDED"}`)
				w.(http.Flusher).Flush()
				select {
				case <-next:
				case <-request.Context().Done():
					return
				}
			}
		})
		for _, path := range []string{"/api/v1/pods?watch=1", "/api/v1/pods/x/log?follow=true", "/anything"} {
			request, err := http.NewRequest("GET", "https://"+r.address+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+r.ticket("prod"))
			response, err := r.client("prod", http2).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(response.Body)
			for range 5 {
				if !lines.Scan() {
					t.Fatal(lines.Err())
				}
				next <- struct{}{}
			}
			response.Body.Close()
		}
	})
}

// A client that goes away ends its watch in the cluster too.
func TestACanceledWatchEnds(t *testing.T) {
	ended := make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
		w.(http.Flusher).Flush()
		<-request.Context().Done()
		close(ended)
	})
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, "GET", "https://"+r.address+"/api/v1/pods?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+r.ticket("prod"))
	response, err := r.client("prod", true).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	response.Body.Close()
	<-ended
}

func TestFailuresOfTheUpstream(t *testing.T) {
	r := newRig(t, ok)
	r.base = "/k8s/clusters/c-1"
	client, bearer := r.client("prod", true), "Bearer "+r.ticket("prod")
	cases := []struct {
		err     error
		code    int
		outcome string
		words   []string
	}{
		{&upstream.Error{Class: "agent", Fault: &fault.Error{Message: "the agent is away", Hint: "start it"}}, 503, "upstream-agent", []string{"the agent is away; start it"}},
		{&upstream.Error{Class: "key", Fault: &fault.Error{Message: "the key wants a PIN", Hint: "holdfast unlock"}}, 503, "upstream-key", []string{"the key wants a PIN; holdfast unlock"}},
		{&upstream.Error{Class: "tls", Fault: &fault.Error{Message: "the certificate is for another name", Hint: "look"}}, 502, "upstream-tls", []string{"for another name; look"}},
		{&upstream.Error{Class: "network", Fault: &fault.Error{Message: "refused"}}, 502, "upstream-network", []string{"holdfast: refused"}},
		{fmt.Errorf("x: %w", &upstream.Error{Class: "timeout", Fault: &fault.Error{Message: "no answer"}}), 504, "upstream-timeout", []string{"no answer"}},
		{&upstream.Error{Class: "new", Fault: &fault.Error{Message: "odd"}}, 502, "upstream-new", []string{"odd"}},
		{errors.New("broken pipe"), 502, "upstream-network", []string{"answer was lost", "broken pipe"}},
	}
	for _, c := range cases {
		r.pools.mu.Lock()
		r.pools.fail = c.err
		r.pools.mu.Unlock()
		got := r.do(client, "GET", "/api", nil, "Authorization", bearer, "Accept", "application/vnd.kubernetes.protobuf")
		got.want(t, c.code, c.words...)
		if !strings.Contains(got.header.Get("Warning"), c.words[0]) {
			t.Errorf("got the warning %s", got.header.Get("Warning"))
		}
		if n := r.count("holdfast_broker_proxy_requests_total", "profile", "prod", "outcome", c.outcome); n == 0 {
			t.Errorf("%v is not counted as %s", c.err, c.outcome)
		}
	}
}

// An upstream that cuts its answer: the client must not take it for whole.
func TestACutAnswer(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		request, err := http.NewRequest("GET", "https://"+r.address+"/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+r.ticket("prod"))
		response, err := r.client("prod", http2).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if text, err := io.ReadAll(response.Body); err == nil {
			t.Errorf("got %q without an error", text)
		}
	})
}

func TestStatusForReasons(t *testing.T) {
	for code, reason := range reasons {
		w := httptest.NewRecorder()
		writeStatus(w, "/api/v1/namespaces/a/pods", refuse(code, "", "hint", "fact"))
		details := ""
		if code == http.StatusTooManyRequests {
			details = `"details":{"retryAfterSeconds":1},`
		}
		want := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"holdfast: fact; hint","reason":"%s",%s"code":%d}`+"\n", reason, details, code)
		if got := w.Body.String(); got != want || w.Code != code {
			t.Errorf("got %d %s, want %s", w.Code, got, want)
		}
	}
}

// Names in a server's certificate, and what its proxy says, are in messages.
func TestMessagesAreFitForATerminal(t *testing.T) {
	r := newRig(t, ok)
	r.pools.fail = &upstream.Error{Class: "tls", Fault: &fault.Error{Message: "a certificate for \x1b]0;hello\x07\u202ename\n", Hint: "ü \u009b31m"}}
	got := r.do(r.client("prod", true), "GET", "/api", nil, "Authorization", "Bearer "+r.ticket("prod")).message(t)
	if want := "holdfast: a certificate for ?]0;hello??name?; ü ?31m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The message that kubectl prints where it reads no Status.
func TestWarningsOfDiscovery(t *testing.T) {
	for path, want := range map[string]string{
		"/api": `299 holdfast "holdfast: a \"b\" \\ c?"`, "/apis/apps/v1": `299 holdfast "holdfast: a \"b\" \\ c?"`,
		"/openapi/v3/apis/apps/v1": `299 holdfast "holdfast: a \"b\" \\ c?"`, "/api/v1/namespaces/a/pods": "", "/apis/apps/v1/deployments": "",
	} {
		w := httptest.NewRecorder()
		writeStatus(w, path, refuse(401, "", "", "a \"b\" \\ c\n"))
		if got := w.Header().Get("Warning"); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestStreams(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/pods?watch=1": true, "/api/v1/pods/x/log?container=a&follow=true": true, "/api/v1/watch/pods": true,
		"/api/v1/pods": false, "/api/v1/pods?limit=500": false,
	} {
		u, err := url.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := streams(u); got != want {
			t.Errorf("%s: got %v", path, got)
		}
	}
}

func TestShutdownWaitsForRequests(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
		close(arrived)
		<-release
		io.WriteString(w, "whole")
	})
	bearer, client := "Bearer "+r.ticket("prod"), r.client("prod", false)
	got := make(chan answer, 1)
	go func() { got <- r.do(client, "GET", "/api", nil, "Authorization", bearer) }()
	<-arrived
	stopped := make(chan error, 1)
	r.shutdown.Do(func() {
		go func() { stopped <- r.proxy.Shutdown(context.Background()) }()
	})
	role.Until(t, "the listener is closed", func() bool {
		_, err := r.client("prod", false).Get("https://" + r.address)
		return err != nil
	})
	close(release)
	if a := <-got; a.code != 200 || a.body != "whole" {
		t.Errorf("got %+v", a)
	}
	client.CloseIdleConnections()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A watch ends like that of an API server that stops: whole, at once, and its client asks
// again on another connection.
func TestShutdownEndsWatches(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
			io.WriteString(w, "event\n")
			w.(http.Flusher).Flush()
			<-request.Context().Done()
		})
		response := r.open(http2, "/api/v1/pods?watch=1")
		took := make(chan time.Duration, 1)
		r.shutdown.Do(func() {
			go func() {
				began := time.Now()
				r.proxy.Shutdown(context.Background())
				took <- time.Since(began)
			}()
		})
		if text, err := io.ReadAll(response.Body); string(text) != "event\n" || err != nil {
			t.Errorf("got %q, %v; want the event and the end of the body", text, err)
		}
		if d := <-took; pace.Over(t, d, time.Second) {
			t.Errorf("the shutdown took %v", d)
		}
	})
}

// open makes a request and returns the answer, which has begun.
func (r *rig) open(http2 bool, path string) *http.Response {
	r.t.Helper()
	request, err := http.NewRequest("GET", "https://"+r.address+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+r.ticket("prod"))
	response, err := r.client("prod", http2).Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { response.Body.Close() })
	return response
}

// A log that is followed has no next event to ask for: it gets time to end.
func TestFollowedLogsAreWaitedFor(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		release := make(chan struct{})
		r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
			w.(http.Flusher).Flush()
			select {
			case <-release:
			case <-request.Context().Done():
			}
		})
		first := r.open(http2, "/api/v1/namespaces/a/pods/b/log?follow=true")
		waited := make(chan struct{})
		go func() {
			r.proxy.WaitEndless(context.Background())
			close(waited)
		}()
		second := r.open(http2, "/api/v1/namespaces/a/pods/b/log?follow=true") // served as before
		select {
		case <-waited:
			t.Error("a log is open, and nothing waits for it")
		default:
		}
		close(release)
		if _, err := io.ReadAll(second.Body); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadAll(first.Body); err != nil {
			t.Error(err)
		}
		<-waited
	})
}

func TestShutdownCutsFollowedLogs(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
			w.(http.Flusher).Flush()
			<-request.Context().Done()
		})
		response := r.open(http2, "/api/v1/namespaces/a/pods/b/log?follow=true")
		r.shutdown.Do(func() { r.proxy.Shutdown(context.Background()) })
		if _, err := io.ReadAll(response.Body); err == nil {
			t.Error("the log ended as if it were whole")
		}
	})
}

// Answers that have an end are whole, whatever their query has.
func TestShutdownWaitsForAnswers(t *testing.T) {
	for _, path := range []string{"/api/v1/pods?watch=False", "/api/v1/pods?follow=false", "/api/v1/namespaces/a/services/b/proxy/?watch=1"} {
		release := make(chan struct{})
		r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
			io.WriteString(w, "first ")
			w.(http.Flusher).Flush()
			select {
			case <-release:
				io.WriteString(w, "second")
			case <-request.Context().Done():
			}
		})
		response := r.open(false, path)
		r.shutdown.Do(func() { go r.proxy.Shutdown(context.Background()) })
		<-r.proxy.ending.Done()
		close(release)
		if text, err := io.ReadAll(response.Body); string(text) != "first second" || err != nil {
			t.Errorf("%s: got %q, %v", path, text, err)
		}
	}
}

// A connection that shows no ticket does not hold up the end.
func TestShutdownDoesNotWaitForTicketless(t *testing.T) {
	r := newRig(t, ok)
	r.dial("prod")
	began := time.Now()
	r.shutdown.Do(func() { r.proxy.Shutdown(context.Background()) })
	if took := time.Since(began); pace.Over(t, took, 2*time.Second) {
		t.Errorf("the shutdown took %v", took)
	}
}
