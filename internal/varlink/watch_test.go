package varlink

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// TestSentTooMuchCancels: a peer whose end could not be seen any more, because
// too much waits before it, does not keep its call.
func TestSentTooMuchCancels(t *testing.T) {
	for name, ahead := range map[string]string{
		"2 KiB":         strings.Repeat(" ", smallBuffer),
		"many requests": strings.Repeat(good+"\x00", 500),
		"a big request": strings.Repeat("x", 100<<10),
	} {
		t.Run(name, func(t *testing.T) {
			events := make(chan string, 2)
			conn, ended := serve(t, context.Background(), testService(events))
			go conn.Write([]byte(`{"method":"org.example.test.Wait"}` + "\x00" + ahead))
			receive(t, events, "start")
			if got := receive(t, events, "cancellation"); got != "cancelled" {
				t.Errorf("got %s, want cancelled", got)
			}
			if err := receive(t, ended, "end"); !errors.Is(err, ErrPipelined) {
				t.Errorf("ServeConn: got %v, want %v", err, ErrPipelined)
			}
		})
	}
}

// TestSentAheadWaits: what fits into the read-ahead disturbs nothing.
func TestSentAheadWaits(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	events := make(chan string, 2)
	s := testService(events)
	release := make(chan struct{})
	s.Interfaces[0].Methods["Wait"] = func(ctx context.Context, call *Call) error {
		events <- "started"
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-release:
		}
		return call.Reply(nil)
	}
	ours, theirs := socketPair(t)
	defer ours.Close()
	reads := make(chan struct{}, 100)
	go s.ServeConn(ctx, &announcing{theirs, reads})
	ours.Write([]byte(`{"method":"org.example.test.Wait"}` + "\x00"))
	receive(t, events, "start")
	ours.Write([]byte(strings.Repeat(good+"\x00", 30)))
	for range 3 { // the request, what is ahead, and the wait for more
		receive(t, reads, "read")
	}
	close(release)
	if got, want := message(t, ours), `{"parameters":{}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for range 30 {
		if got, want := message(t, ours), `{"parameters":{"text":"hi"}}`; got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

// TestNextRequestAfterReply: a client that has the reply may send a big request before
// the method has returned.
func TestNextRequestAfterReply(t *testing.T) {
	s := testService(nil)
	reads, release := make(chan int, 100), make(chan struct{})
	s.Interfaces[0].Methods["Linger"] = func(_ context.Context, call *Call) error {
		time.Sleep(2 * watchAfter)
		err := call.Reply(nil)
		<-release
		return err
	}
	ours, theirs := socketPair(t)
	defer ours.Close()
	go s.ServeConn(context.Background(), &counting{theirs, reads})
	ours.Write([]byte(`{"method":"org.example.test.Linger"}` + "\x00"))
	receive(t, reads, "request")
	if got, want := message(t, ours), `{"parameters":{}}`; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	big := strings.Repeat("x", 2*smallBuffer)
	ours.Write([]byte(`{"method":"org.example.test.Echo","parameters":{"text":"` + big + `"}}` + "\x00"))
	for n := 0; n < smallBuffer; {
		n += receive(t, reads, "read ahead")
	}
	close(release)
	if got, want := message(t, ours), `{"parameters":{"text":"`+big+`"}}`; got != want {
		t.Errorf("got %.50q, want the text", got)
	}
}

// A counting connection tells how much each read returned.
type counting struct {
	net.Conn
	reads chan<- int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.reads <- n
	return n, err
}
