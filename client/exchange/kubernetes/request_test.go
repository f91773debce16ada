package kubernetes

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/test/apiserver"
)

// answers is a transport that gives the same answer each time.
type answers struct {
	code   int
	header http.Header
	body   string
	n      int
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.n++
	if a.header == nil {
		a.header = http.Header{"Content-Type": {"application/json"}}
	}
	return &http.Response{StatusCode: a.code, Header: a.header, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

func TestWhoAmI(t *testing.T) {
	server, c, _ := start(t)
	u, err := c.WhoAmI(soon(t))
	if err != nil || u.Username != "system:bootstrap:abcdef" || u.UID != "7" || len(u.Groups) != 2 {
		t.Errorf("got %+v, %v", u, err)
	}
	c.HTTP = bearer{"stale", transport(t, server)}
	_, err = c.WhoAmI(soon(t))
	if e := new(StatusError); !errors.As(err, &e) || e.Code != http.StatusUnauthorized || e.Reason != "Unauthorized" {
		t.Errorf("a token that is not known: got %#v", err)
	}
}

func TestRequestToken(t *testing.T) {
	_, c, _ := start(t)
	token, err := c.RequestToken(soon(t), TokenRequest{Namespace: "ci", ServiceAccount: "builder", Audiences: []string{"a"}, Lifetime: 10 * time.Minute})
	if err != nil || token.Token != "token-1-of-builder" {
		t.Fatalf("got %+v, %v", token, err)
	}
	if left := time.Until(token.Expires); left < 9*time.Minute || left > 10*time.Minute {
		t.Errorf("it is valid for %s", left)
	}
	// The server may shorten it, and only the server's word counts.
	token, err = c.RequestToken(soon(t), TokenRequest{Namespace: "ci", ServiceAccount: "builder", Lifetime: 48 * time.Hour})
	if left := time.Until(token.Expires); err != nil || left > 24*time.Hour || left < 23*time.Hour {
		t.Errorf("it is valid for %s, %v", left, err)
	}
	for _, r := range []TokenRequest{
		{Namespace: "ci", ServiceAccount: "../../../x"}, {Namespace: "..", ServiceAccount: "x"}, {Namespace: "ci"}, {ServiceAccount: "x"},
		{Namespace: "ci", ServiceAccount: "x", Lifetime: 599 * time.Second}, {Namespace: "ci?a", ServiceAccount: "x"},
	} {
		if token, err := c.RequestToken(soon(t), r); err == nil || token.Token != "" {
			t.Errorf("%+v: got %+v", r, token)
		}
	}
}

func TestTokensOfNoUse(t *testing.T) {
	for _, status := range []string{
		`{}`, `{"token":"","expirationTimestamp":"2999-01-01T00:00:00Z"}`, `{"token":"hush\r\nX: y","expirationTimestamp":"2999-01-01T00:00:00Z"}`,
		`{"token":"hush"}`, `{"token":"hush","expirationTimestamp":"2001-01-01T00:00:00Z"}`, `{"token":"hush","expirationTimestamp":"soon"}`,
	} {
		c := &Client{Server: "https://api", HTTP: &answers{code: 201, body: `{"kind":"TokenRequest","status":` + status + `}`}}
		token, err := c.RequestToken(soon(t), TokenRequest{Namespace: "ci", ServiceAccount: "x"})
		if err == nil || token.Token != "" || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %+v, %v", status, token, err)
		}
	}
}

// A server that is busy is asked again when it says, as long as ctx allows it.
func TestRetryAfter(t *testing.T) {
	server, c, waits := start(t)
	server.Change(func(c *apiserver.Conduct) { c.Refuse = 3 })
	if _, err := c.WhoAmI(soon(t)); err != nil || len(waits.all()) != 3 || waits.all()[0] != time.Second {
		t.Errorf("got %v after waiting %v", err, waits.all())
	}
	tests := map[string]struct {
		code  int
		after string
		tries int
	}{
		"busy for ever":          {429, "1", maxRetries + 1},
		"away for ever":          {503, "1", maxRetries + 1},
		"away without a word":    {503, "", 1},
		"longer than we wait":    {429, "3600", 1},
		"longer than ctx allows": {429, "40", 1},
		"no refusal of a moment": {403, "1", 1},
		"nonsense":               {429, "soon", 1},
		"negative":               {429, "-1", 1},
	}
	for name, test := range tests {
		a := &answers{code: test.code, header: http.Header{"Retry-After": {test.after}}}
		c := &Client{Server: "https://api", HTTP: a, pause: waits.pause}
		_, err := c.WhoAmI(soon(t))
		if e := new(StatusError); !errors.As(err, &e) || e.Code != test.code || a.n != test.tries {
			t.Errorf("%s: got %#v after %d tries, want %d", name, err, a.n, test.tries)
		}
	}
}

func TestRetryAfterHeader(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "0": time.Millisecond, "x": 0, "99999999999": 0,
		"Thu, 01 Jan 2026 00:00:07 GMT": 7 * time.Second, "Wed, 31 Dec 2025 00:00:00 GMT": time.Millisecond,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	page := http.Header{"Content-Type": {"text/html"}}
	tests := map[string]struct {
		answers answers
		want    string
	}{
		"a page":                  {answers{code: 200, header: page, body: "<html>"}, "not an API server's"},
		"an error page":           {answers{code: 502, header: page, body: "<html>"}, "the API server answered 502 Bad Gateway"},
		"a redirect":              {answers{code: 302, header: http.Header{"Location": {"https://evil"}}}, "answered 302"},
		"an unknown code":         {answers{code: 599}, "answered 599"},
		"too much":                {answers{code: 201, body: strings.Repeat(" ", maxBody+1)}, "longer than"},
		"nobody":                  {answers{code: 201, body: "{}"}, "names no user"},
		"a status for a terminal": {answers{code: 403, body: `{"kind":"Status","message":"a\u001b[2Jb\nc"}`}, "a?[2Jb c"},
		"a long status":           {answers{code: 403, body: `{"kind":"Status","message":"` + strings.Repeat("ä", 5000) + `"}`}, "ää…"},
	}
	for name, test := range tests {
		c := &Client{Server: "https://api", HTTP: &test.answers}
		_, err := c.WhoAmI(soon(t))
		wantError(t, err, test.want)
		if err != nil && len(err.Error()) > 2*maxText {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

// Credentials go only to the server's address and only by HTTPS.
func TestAddresses(t *testing.T) {
	for _, server := range []string{"", "http://api", "api:6443", "https://", "https://user:pass@api", "https://api?a=b", "https://api#a", "https://api:port"} {
		a := &answers{code: 201, body: "{}"}
		if _, err := (&Client{Server: server, HTTP: a}).WhoAmI(context.Background()); err == nil || a.n != 0 {
			t.Errorf("%q: %d requests were sent", server, a.n)
		}
	}
	if _, err := (&Client{Server: "https://api"}).WhoAmI(context.Background()); err == nil {
		t.Error("no transport: no error")
	}
	if got, err := (&Client{Server: "https://api:6443/k8s/clusters/c-1/", HTTP: &answers{}}).address("/api", nil); err != nil || got != "https://api:6443/k8s/clusters/c-1/api" {
		t.Errorf("got %q, %v", got, err)
	}
}
