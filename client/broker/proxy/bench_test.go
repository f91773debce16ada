package proxy

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// direct sends requests to the cluster without the proxy.
func (b *broker) direct(method, path string, body io.Reader) *http.Request {
	b.t.Helper()
	r, err := http.NewRequest(method, "https://"+b.pools.server+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// BenchmarkRequest prints how much longer a small request takes through the proxy
// than without it, in the median, one after the other in turn.
func BenchmarkRequest(b *testing.B) {
	p := newBroker(b, busy)
	client := p.client("prod", true)
	var with, without []time.Duration
	one := func(r *http.Request, by http.RoundTripper) time.Duration {
		began := time.Now()
		response, err := by.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		return time.Since(began)
	}
	for b.Loop() {
		with = append(with, one(p.request(b.Context(), "GET", "/small", nil), client.Transport))
		without = append(without, one(p.direct("GET", "/small", nil), p.pools.both))
	}
	slices.Sort(with)
	slices.Sort(without)
	b.ReportMetric(float64((with[len(with)/2] - without[len(without)/2]).Microseconds()), "overhead-us")
	b.ReportMetric(float64(without[len(without)/2].Microseconds()), "direct-us")
}

// BenchmarkStream prints the rate through the proxy over the rate without it.
func BenchmarkStream(b *testing.B) {
	const size = 256 << 20
	for _, way := range []string{"GET /down", "POST /up"} {
		method, path, _ := strings.Cut(way, " ")
		b.Run(path[1:], func(b *testing.B) {
			p := newBroker(b, busy)
			client := p.client("prod", true)
			one := func(by http.RoundTripper, make func(method, path string, body io.Reader) *http.Request) time.Duration {
				var body io.Reader
				if method == "POST" {
					body = zeros(size)
				}
				began := time.Now()
				response, err := by.RoundTrip(make(method, path+"?n=268435456", body))
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, response.Body); err != nil || method == "GET" && n != size {
					b.Fatalf("got %d bytes, %v", n, err)
				}
				response.Body.Close()
				return time.Since(began)
			}
			proxied := func(method, path string, body io.Reader) *http.Request {
				return p.request(b.Context(), method, path, body)
			}
			var ratios []float64
			for b.Loop() {
				with, without := one(client.Transport, proxied), one(p.pools.both, p.direct)
				ratios = append(ratios, without.Seconds()/with.Seconds())
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "of-direct")
		})
	}
}
