package upstream_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"testing"
)

// Large bodies pass both ways, unchanged.
func TestLargeBodies(t *testing.T) {
	const size = 8 << 20
	for _, http2 := range []bool{true, false} {
		r := newRig(t, func(s *server) {
			s.EnableHTTP2 = http2
			s.Config.Handler.(*http.ServeMux).HandleFunc("/count", func(w http.ResponseWriter, r *http.Request) {
				h := sha256.New()
				n, err := io.Copy(h, r.Body)
				fmt.Fprintf(w, "%d %v %x", n, err, h.Sum(nil))
			})
			s.Config.Handler.(*http.ServeMux).HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.CopyN(w, rand.New(rand.NewSource(1)), size)
			})
		})
		want := sha256.New()
		_, _ = io.CopyN(want, rand.New(rand.NewSource(1)), size)
		text, err := send(r.transport(), "POST", "/count", io.LimitReader(rand.New(rand.NewSource(1)), size))
		if err != nil || text != fmt.Sprintf("%d <nil> %x", size, want.Sum(nil)) {
			t.Errorf("HTTP/2 %v: sent %s, %v", http2, text, err)
		}
		got := sha256.New()
		request, _ := http.NewRequest("GET", "https://x/large", nil)
		answer, err := r.transport().RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(got, answer.Body); n != size || err != nil || string(got.Sum(nil)) != string(want.Sum(nil)) {
			t.Errorf("HTTP/2 %v: got %d bytes, %v", http2, n, err)
		}
		answer.Body.Close()
		if n := r.signatures(t); n != 1 {
			t.Errorf("HTTP/2 %v: %d signatures", http2, n)
		}
	}
}
