package upstream_test

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// byHand serves HTTP/2 without package http: answer gets each request's stream, and
// what writes a frame.
func byHand(s *server, answer func(stream uint32, frame func(kind, flags byte, stream uint32, payload string))) {
	s.EnableHTTP2 = false
	s.TLS.NextProtos = []string{"h2"}
	s.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": func(_ *http.Server, c *tls.Conn, _ http.Handler) {
		defer c.Close()
		frame := func(kind, flags byte, stream uint32, payload string) {
			header := [9]byte{2: byte(len(payload)), 3: kind, 4: flags}
			binary.BigEndian.PutUint32(header[5:], stream)
			io.WriteString(c, string(header[:])+payload)
		}
		preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
		if _, err := io.ReadFull(c, preface); err != nil {
			return
		}
		frame(4, 0, 0, "") // SETTINGS
		for header := [9]byte{}; ; {
			if _, err := io.ReadFull(c, header[:]); err != nil {
				return
			}
			size := int64(header[0])<<16 | int64(header[1])<<8 | int64(header[2])
			if _, err := io.CopyN(io.Discard, c, size); err != nil {
				return
			}
			if header[3] == 1 { // HEADERS
				answer(binary.BigEndian.Uint32(header[5:]), frame)
			}
		}
	}}
}

// A request that the server's GOAWAY leaves out goes to the next connection, whatever
// its method.
func TestServerGoesAway(t *testing.T) {
	var answered atomic.Int32
	r := newRig(t, func(s *server) {
		byHand(s, func(stream uint32, frame func(kind, flags byte, stream uint32, payload string)) {
			if stream > 1 {
				frame(7, 0, 0, "\x00\x00\x00\x01\x00\x00\x00\x00") // GOAWAY, last stream 1, NO_ERROR
				return
			}
			answered.Add(1)
			frame(1, 5, stream, "\x88") // HEADERS, :status 200
		})
	})
	for range 5 {
		if _, err := send(r.transport(), "POST", "/who", strings.NewReader("body")); err != nil {
			t.Error(err)
		}
	}
	if n := answered.Load(); n != 5 {
		t.Errorf("%d requests were answered, want 5", n)
	}
}

// A request that the server refuses unprocessed is sent once more, on the connection
// that is there, and not at all where that would take another signature.
func TestServerRefusesStream(t *testing.T) {
	for _, single := range []bool{false, true} {
		var requests atomic.Int32
		r := newRig(t, func(s *server) {
			byHand(s, func(stream uint32, frame func(kind, flags byte, stream uint32, payload string)) {
				requests.Add(1)
				frame(3, 0, stream, "\x00\x00\x00\x07") // RST_STREAM, REFUSED_STREAM
			})
		})
		r.profile.Proxy.NoPool = single
		if _, err := send(r.transport(), "GET", "/who", nil); err == nil {
			t.Error("a refused request succeeded")
		}
		want := map[bool]int32{false: 2, true: 1}[single]
		if got, n := requests.Load(), r.signatures(t); got != want || n != 1 {
			t.Errorf("a connection for each request %v: it was sent %d times with %d signatures, want %d and 1", single, got, n, want)
		}
	}
}
