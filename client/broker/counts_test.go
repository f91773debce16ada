package broker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/client/broker/upstream"
	"holdfast/client/clienttest"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
	"holdfast/internal/metrics"
)

// Every error gets the exit code that the plugin gives for it.
func TestExitCodes(t *testing.T) {
	unreachable := &client.UnreachableError{Reason: "no agent"}
	for _, test := range []struct {
		err  error
		kind fault.Kind
		code string
	}{
		{&fault.Error{Kind: fault.Denied}, fault.Denied, "4"},
		{&fault.Error{Kind: fault.PINRequired}, fault.PINRequired, "5"},
		{&fault.Error{Kind: fault.PINBlocked}, fault.PINBlocked, "5"},
		{&fault.Error{Kind: fault.TouchTimeout}, fault.TouchTimeout, "5"},
		{&fault.Error{Kind: fault.Busy}, fault.Busy, "1"},
		{unreachable, brokerwire.AgentUnreachable, "3"},
		{fmt.Errorf("loopback: %w", unreachable), brokerwire.AgentUnreachable, "3"},
		{&upstream.Error{Class: upstream.Network, Fault: &fault.Error{Kind: brokerwire.Upstream}}, brokerwire.Upstream, "1"},
		{&upstream.Error{Class: upstream.Key, Fault: &fault.Error{Kind: fault.PINRequired}}, fault.PINRequired, "5"},
		{context.DeadlineExceeded, fault.Deadline, "1"},
		{context.Canceled, fault.Internal, "3"},
		{errors.New("secret"), fault.Internal, "1"},
	} {
		known := toFault(test.err, "")
		if code := exitCode(test.err); known.Kind != test.kind || code != test.code {
			t.Errorf("%T %v: got %s, code %s, want %s, code %s", test.err, test.err, known.Kind, code, test.kind, test.code)
		}
		if known.Message == "secret" {
			t.Error("an error of no kind crosses with its text")
		}
	}
	if code := exitCode(nil); code != "0" {
		t.Errorf("no error: code %s", code)
	}
}

func sample(t *testing.T, r *metrics.Registry, name string, labels ...string) metrics.Sample {
	t.Helper()
	for _, m := range r.Snapshot() {
		for _, s := range m.Samples {
			if m.Name == name && slices.Equal(s.Labels, labels) {
				return s
			}
		}
	}
	return metrics.Sample{}
}

func TestModesInLabels(t *testing.T) {
	r := metrics.New()
	c := newCounts(r)
	c.answer("0", "token")
	c.answer("1", "what a caller wrote")
	if sample(t, r, "holdfast_broker_plugin_answers_total", "code", "1", "mode", metrics.Other).Value != 1 {
		t.Errorf("got %+v", r.Snapshot())
	}
}

func TestRotationAge(t *testing.T) {
	r, ca := metrics.New(), clienttest.NewCA(t)
	c := newCounts(r)
	give := func(profile string, certificate []byte) {
		c.given(1000, profile, "certificate", brokerwire.Credential{
			ClientCertificateData: string(clienttest.PEM(certificate)), ExpirationTimestamp: time.Now().Add(time.Hour),
		})
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	first, second := ca.IssueFor("node", key.Public()), ca.IssueFor("node", key.Public())
	give("prod", first)
	give("prod", first)
	give("dev", second) // another one's
	if got := sample(t, r, "holdfast_broker_certificate_rotation_age_seconds"); got.Count != 0 {
		t.Errorf("nothing was rotated: %+v", got)
	}
	give("prod", second)
	got := sample(t, r, "holdfast_broker_certificate_rotation_age_seconds")
	if got.Count != 1 || got.Sum < 0 || len(got.Buckets) != 11 || got.Buckets[0].UpTo != 600 || got.Buckets[10].UpTo != 124416000 {
		t.Errorf("rotated once: %+v", got)
	}
}

func TestShortestTTL(t *testing.T) {
	r := metrics.New()
	c := newCounts(r)
	now := time.Now()
	for profile, left := range map[string]time.Duration{"a": time.Hour, "b": time.Minute, "gone": -2 * time.Hour} {
		c.given(1, profile, "token", brokerwire.Credential{Token: "t", ExpirationTimestamp: now.Add(left)})
	}
	c.lifetimes.show(c.ttl)
	if got := sample(t, r, "holdfast_broker_shortest_ttl_seconds", "mode", "token").Value; got < 50 || got > 60 {
		t.Errorf("got %v, want 60", got)
	}
	for i := range 2 * maxLifetimes {
		c.given(uint32(i), "p", "token", brokerwire.Credential{ExpirationTimestamp: now.Add(time.Hour)})
	}
	if n := len(c.lifetimes.last); n > maxLifetimes {
		t.Errorf("%d are remembered", n)
	}
}
