package upstream_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Answers that a client does not read wait at the server, not in the broker's memory: a
// terminal that was stopped, or many, must not take all of it.
func TestUnreadAnswersWaitAtTheServer(t *testing.T) {
	const streams, most = 8, 1 << 20
	var sent [streams]atomic.Int64
	var blocked atomic.Int64
	r := newRig(t, func(s *server) {
		s.Config.Handler.(*http.ServeMux).HandleFunc("/flood/{n}", func(w http.ResponseWriter, q *http.Request) {
			n := q.PathValue("n")[0] - '0'
			chunk := make([]byte, 16<<10)
			for q.Context().Err() == nil && sent[n].Load() < 8<<20 {
				control := http.NewResponseController(w)
				_ = control.SetWriteDeadline(time.Now().Add(2 * time.Second)) // which ends a stream that is full
				wrote, err := w.Write(chunk)
				if sent[n].Add(int64(wrote)); err != nil {
					break
				}
			}
			blocked.Add(1)
		})
	})
	for n := range streams {
		request, err := http.NewRequest("GET", "https://x/flood/"+string(rune('0'+n)), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := r.transport().RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
	}
	eventually(t, func() string {
		if blocked.Load() < streams {
			return "some still send"
		}
		return ""
	})
	for n := range sent {
		if got := sent[n].Load(); got > most {
			t.Errorf("stream %d: %d bytes were taken that nobody read", n, got)
		}
	}
	if n := r.signatures(t); n != 1 {
		t.Errorf("%d signatures", n)
	}
}

// An answer's headers are held whole before they are passed on.
func TestHugeHeadersAreRefused(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		r := newRig(t, func(s *server) {
			s.EnableHTTP2 = http2
			s.Config.Handler.(*http.ServeMux).HandleFunc("/headers", func(w http.ResponseWriter, q *http.Request) {
				for range 64 {
					w.Header().Add("X-Much", strings.Repeat("x", 16<<10))
				}
				w.WriteHeader(http.StatusOK)
				_, _ = io.WriteString(w, "ok")
			})
		})
		if text, err := send(r.transport(), "GET", "/headers", nil); err == nil {
			t.Errorf("HTTP/2 %v: a megabyte of headers was taken, and then %q", http2, text)
		}
		if text := get(t, r.transport(), "/who"); !strings.HasPrefix(text, "alice ") {
			t.Errorf("HTTP/2 %v: afterwards: %s", http2, text)
		}
	}
}
