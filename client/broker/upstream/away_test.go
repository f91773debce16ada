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

// goingAway serves HTTP/2 by hand: each connection answers its first request, and
// meets the second with a GOAWAY that leaves it out. It returns how many requests
// it answered.
func goingAway(s *server) *atomic.Int32 {
	answered := new(atomic.Int32)
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
			switch stream := binary.BigEndian.Uint32(header[5:]); {
			case header[3] == 1 && stream == 1: // HEADERS
				answered.Add(1)
				frame(1, 5, stream, "\x88") // :status 200
			case header[3] == 1:
				frame(7, 0, 0, "\x00\x00\x00\x01\x00\x00\x00\x00") // GOAWAY, last stream 1, NO_ERROR
			}
		}
	}}
	return answered
}

// A request that the server's GOAWAY leaves out goes to the next connection, whatever
// its method.
func TestServerGoesAway(t *testing.T) {
	var answered *atomic.Int32
	r := newRig(t, func(s *server) { answered = goingAway(s) })
	for range 5 {
		if _, err := send(r.transport(), "POST", "/who", strings.NewReader("body")); err != nil {
			t.Error(err)
		}
	}
	if n := answered.Load(); n != 5 {
		t.Errorf("%d requests were answered, want 5", n)
	}
}
