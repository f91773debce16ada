package proxy

import (
	"net/http"
	"testing"
)

// One user's requests end at a bound, and leave room for others'.
func TestRequestLimit(t *testing.T) {
	var c requestLimit
	for uid, want := range []int{maxRequestsPerUID, maxRequestsPerUID, maxRequestsPerUID, maxRequestsPerUID, 0} {
		taken := 0
		for c.enter(uint32(uid)) == nil {
			taken++
		}
		if taken != want {
			t.Errorf("user %d: %d requests were taken, want %d", uid, taken, want)
		}
	}
	c.leave(1)
	if c.enter(0) == nil || c.enter(1) != nil {
		t.Error("a place that was given back is another's")
	}
	for uid := range uint32(4) {
		for range maxRequestsPerUID {
			c.leave(uid)
		}
	}
	if c.all != 0 || len(c.perUID) != 0 {
		t.Errorf("%d are in progress, of %d users, when all have ended", c.all, len(c.perUID))
	}
}

func TestTooManyRequests(t *testing.T) {
	r := newRig(t, ok)
	client, bearer := r.client("prod", true), "Bearer "+r.ticket("prod")
	for range maxRequests {
		r.proxy.limit.enter(4321)
		r.proxy.limit.enter(4322)
		r.proxy.limit.enter(4323)
		r.proxy.limit.enter(4324)
	}
	got := r.do(client, "GET", "/api", nil, "Authorization", bearer)
	got.want(t, http.StatusTooManyRequests, "in progress")
	if got.header.Get("Retry-After") != "1" { // which has client-go try again by itself
		t.Errorf("got Retry-After %q", got.header.Get("Retry-After"))
	}
	r.proxy.limit.leave(4321)
	for range 3 { // each gives its place back
		r.do(client, "GET", "/api", nil, "Authorization", bearer).want(t, http.StatusOK)
	}
}
