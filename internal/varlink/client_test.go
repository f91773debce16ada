package varlink

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// answer plays a service that reads one request and writes raw bytes.
func answer(t *testing.T, raw string) *Conn {
	t.Helper()
	ours, theirs := socketPair(t)
	t.Cleanup(func() { ours.Close() })
	go func() {
		defer theirs.Close()
		f := framer{from: theirs}
		for {
			if _, ok := f.frame(); ok {
				theirs.Write([]byte(raw))
				return
			}
			if f.fill() != nil {
				return
			}
		}
	}()
	return NewConn(ours)
}

func TestCallReturnsError(t *testing.T) {
	conn, _ := serve(t, context.Background(), testService(nil))
	c := NewConn(conn)
	var got *Error
	err := c.Call(context.Background(), "org.example.test.Fail", nil, nil)
	if !errors.As(err, &got) || got.Name != "org.example.test.Failed" || string(got.Parameters) != `{"message":"step: own error"}` {
		t.Errorf("got %v", err)
	}
	if want := `org.example.test.Failed {"message":"step: own error"}`; err.Error() != want {
		t.Errorf("got text %q, want %q", err, want)
	}
	if err := c.Call(context.Background(), "org.example.test.Echo", echo{}, nil); err != nil {
		t.Errorf("call after an error: %v", err)
	}
}

func TestReplyMayHaveMore(t *testing.T) {
	c := answer(t, `{"newer":1,"parameters":{"text":"hi","newer":[{}]}}`+"\x00")
	var got echo
	if err := c.Call(context.Background(), "a.b.C", nil, &got); err != nil || got.Text != "hi" {
		t.Errorf("got %q, %v", got.Text, err)
	}
}

func TestBadReplies(t *testing.T) {
	tests := map[string]string{
		"no JSON": "x\x00", "empty": "\x00", "array": "[]\x00", "number": "1\x00",
		"too long": strings.Repeat(" ", MaxMessage+2),
	}
	for name, raw := range tests {
		t.Run(name, func(t *testing.T) {
			c := answer(t, raw)
			if err := c.Call(context.Background(), "a.b.C", nil, nil); !errors.Is(err, ErrMalformed) {
				t.Errorf("got %v, want %v", err, ErrMalformed)
			}
			if err := c.Call(context.Background(), "a.b.C", nil, nil); !errors.Is(err, ErrConnectionLost) {
				t.Errorf("next call: got %v, want %v", err, ErrConnectionLost)
			}
		})
	}
}

func TestLostWhileWaiting(t *testing.T) {
	for _, raw := range []string{"", `{"parameters":`} {
		var lost *LostError
		err := answer(t, raw).Call(context.Background(), "a.b.C", nil, nil)
		if !errors.As(err, &lost) || !lost.Sent || !errors.Is(err, ErrConnectionLost) {
			t.Errorf("after %q: got %v, want a LostError with Sent", raw, err)
		}
	}
}

func TestLostBeforeSending(t *testing.T) {
	ours, theirs := socketPair(t)
	theirs.Close()
	c := NewConn(ours)
	for range 2 {
		var lost *LostError
		if err := c.Call(context.Background(), "a.b.C", nil, nil); !errors.As(err, &lost) || lost.Sent {
			t.Errorf("got %v, want a LostError without Sent", err)
		}
	}
}

func TestContextCancelsCall(t *testing.T) {
	events := make(chan string, 2)
	conn, _ := serve(t, context.Background(), testService(events))
	c := NewConn(conn)
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() { failed <- c.Call(ctx, "org.example.test.Wait", nil, nil) }()
	receive(t, events, "start")
	cancel()
	if err := receive(t, failed, "return of Call"); !errors.Is(err, context.Canceled) || errors.Is(err, ErrConnectionLost) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if got := receive(t, events, "cancellation"); got != "cancelled" {
		t.Errorf("got %s, want cancelled", got)
	}
}

func TestContextOfWaitingCall(t *testing.T) {
	events := make(chan string, 2)
	conn, _ := serve(t, context.Background(), testService(events))
	c := NewConn(conn)
	first := make(chan error, 1)
	go func() { first <- c.Call(context.Background(), "org.example.test.Wait", nil, nil) }()
	receive(t, events, "start")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := c.Call(ctx, "org.example.test.Echo", echo{}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	select {
	case err := <-first:
		t.Errorf("the call that ran was ended: %v", err)
	default:
	}
	c.Close()
	receive(t, first, "return of the first call")
}

// A context that has ended already costs no connection.
func TestEndedContext(t *testing.T) {
	conn, _ := serve(t, context.Background(), testService(nil))
	c := NewConn(conn)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 20 {
		if err := c.Call(ctx, "org.example.test.Echo", echo{}, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		if err := c.Call(context.Background(), "org.example.test.Echo", echo{}, nil); err != nil {
			t.Fatalf("afterwards: %v", err)
		}
	}
}

func TestCallMoreStops(t *testing.T) {
	conn, ended := serve(t, context.Background(), testService(nil))
	stop := errors.New("enough")
	err := NewConn(conn).CallMore(context.Background(), "org.example.test.Count", map[string]int{"to": 3},
		func(json.RawMessage, bool) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("got %v, want %v", err, stop)
	}
	receive(t, ended, "end of the connection")
}

func TestConcurrentCalls(t *testing.T) {
	conn, _ := serve(t, context.Background(), testService(nil))
	c := NewConn(conn)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			want := strings.Repeat("x", i)
			for range 50 {
				var got echo
				if err := c.Call(context.Background(), "org.example.test.Echo", echo{Text: want}, &got); err != nil || got.Text != want {
					t.Errorf("got %q, %v, want %q", got.Text, err, want)
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkRoundTrip(b *testing.B) {
	l, err := net.Listen("unix", b.TempDir()+"/s")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go testService(nil).ServeConn(context.Background(), conn)
		}
	}()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	c := NewConn(conn)
	defer c.Close()
	in, out := echo{Text: strings.Repeat("x", 200)}, echo{}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Call(context.Background(), "org.example.test.Echo", in, &out); err != nil {
			b.Fatal(err)
		}
	}
}
