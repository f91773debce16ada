package varlink

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// perBig is what a request of 250 KiB takes of the budget once it has grown.
const perBig = MaxMessage + 1 - smallBuffer

// TestBigRequestsAreBounded: however many connections hold big requests that do
// not end, what they keep is bounded, and a small request does not notice.
func TestBigRequestsAreBounded(t *testing.T) {
	const connections, limit = 100, 4 << 20
	s := testService(nil)
	s.BigBytes, s.ReadTimeout = limit, time.Minute
	before := memory()
	half := []byte(good[:len(good)-4] + strings.Repeat("x", 250<<10))
	conns := make([]net.Conn, connections)
	ended := make(chan error, connections)
	for i := range conns {
		ours, theirs := socketPair(t)
		conns[i] = ours
		go func() { ended <- s.ServeConn(context.Background(), theirs) }()
		go ours.Write(half)
	}
	busy := 0
	for stop := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		for ; len(ended) > 0; busy++ {
			if err := <-ended; !errors.Is(err, ErrBusy) {
				t.Errorf("ServeConn: got %v, want %v", err, ErrBusy)
			}
		}
		if s.big.taken() == int64(connections-busy)*perBig {
			break
		}
		if time.Now().After(stop) {
			t.Fatalf("%d connections ended, the others hold %d bytes, want %d each", busy, s.big.taken(), perBig)
		}
	}
	if kept := connections - busy; kept == 0 || kept > limit/perBig {
		t.Errorf("%d connections keep a big request, want 1 to %d", kept, limit/perBig)
	}
	if grown := memory() - before; grown > limit+4<<20 {
		t.Errorf("memory grew by %d bytes for %d connections, want at most %d", grown, connections, limit+4<<20)
	}
	small, _ := serve(t, context.Background(), s)
	if got, want := exchange(t, small, good+"\x00"), `{"parameters":{"text":"hi"}}`; got != want {
		t.Errorf("a small request: got %s, want %s", got, want)
	}
	for _, c := range conns {
		c.Close()
	}
	for range connections - busy {
		receive(t, ended, "end")
	}
	if got := s.big.taken(); got != 0 {
		t.Errorf("%d bytes are taken with all big requests gone", got)
	}
}

// TestBigRequestCounts: a request counts until its call has been answered, and
// then no more, on a connection that stays.
func TestBigRequestCounts(t *testing.T) {
	events := make(chan string, 2)
	s := testService(events)
	s.BigBytes = MaxMessage
	big := `,"parameters":{"text":"` + strings.Repeat("x", 200<<10) + `"}}` + "\x00"
	waiting, ended := serve(t, context.Background(), s)
	waiting.Write([]byte(`{"method":"org.example.test.Wait"` + big))
	receive(t, events, "start")
	if got := s.big.taken(); got != perBig {
		t.Errorf("%d bytes are taken while the call runs, want %d", got, perBig)
	}
	second, secondEnded := serve(t, context.Background(), s)
	go second.Write([]byte(`{"method":"org.example.test.Echo"` + big))
	if err := receive(t, secondEnded, "end"); !errors.Is(err, ErrBusy) {
		t.Errorf("a second big request: got %v, want %v", err, ErrBusy)
	}
	waiting.Close()
	receive(t, ended, "end")
	third, _ := serve(t, context.Background(), s)
	for range 3 {
		exchange(t, third, `{"method":"org.example.test.Echo"`+big)
	}
	exchange(t, third, good+"\x00") // taken up after the big ones were settled
	if got := s.big.taken(); got != 0 {
		t.Errorf("%d bytes are taken by a connection between two requests", got)
	}
}

func (b *budget) taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}
