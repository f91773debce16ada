package varlink

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/test/pace"
)

func TestPeerCloseCancels(t *testing.T) {
	closers := map[string]func(*net.UnixConn) error{
		"close":         (*net.UnixConn).Close,
		"half-close":    (*net.UnixConn).CloseWrite,
		"early request": func(c *net.UnixConn) error { c.Write([]byte(good + "\x00")); return c.Close() },
		"half request":  func(c *net.UnixConn) error { c.Write([]byte(good[:9])); return c.Close() },
	}
	for name, end := range closers {
		t.Run(name, func(t *testing.T) {
			events := make(chan string, 2)
			conn, ended := serve(t, context.Background(), testService(events))
			conn.Write([]byte(`{"method":"org.example.test.Wait"}` + "\x00"))
			if got := receive(t, events, "start"); got != "started" {
				t.Fatal(got)
			}
			end(conn.(*net.UnixConn))
			if got := receive(t, events, "cancellation"); got != "cancelled" {
				t.Errorf("got %s, want cancelled", got)
			}
			receive(t, ended, "end")
		})
	}
}

func TestOwnerCloseCancels(t *testing.T) {
	ours, theirs := socketPair(t)
	defer ours.Close()
	events := make(chan string, 2)
	ended := make(chan error, 1)
	go func() { ended <- testService(events).ServeConn(context.Background(), theirs) }()
	ours.Write([]byte(`{"method":"org.example.test.Wait"}` + "\x00"))
	receive(t, events, "start")
	theirs.Close()
	if got := receive(t, events, "cancellation"); got != "cancelled" {
		t.Errorf("got %s, want cancelled", got)
	}
	if err := receive(t, ended, "end"); err != nil {
		t.Errorf("ServeConn: %v", err)
	}
}

func TestDrain(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	events := make(chan string, 2)
	busy, busyEnded := serve(t, ctx, testService(events))
	idle, idleEnded := serve(t, ctx, testService(events))
	partial, partialEnded := serve(t, ctx, testService(events))
	exchange(t, idle, good+"\x00")
	partial.Write([]byte(good[:9]))
	busy.Write([]byte(`{"method":"org.example.test.Wait"}` + "\x00" + good + "\x00"))
	receive(t, events, "start")
	stop()
	if got := receive(t, events, "stop"); got != "stopping" {
		t.Errorf("got %s, want stopping", got)
	}
	if got, want := message(t, busy), `{"parameters":{}}`; got != want {
		t.Errorf("reply of the call that ran: got %s, want %s", got, want)
	}
	if rest, err := io.ReadAll(busy); err != nil && !reset(err) || len(rest) > 0 {
		t.Errorf("after the reply: got %q, %v, want the end", rest, err)
	}
	for _, ended := range []<-chan error{busyEnded, idleEnded, partialEnded} {
		if err := receive(t, ended, "end"); err != nil {
			t.Errorf("ServeConn: %v", err)
		}
	}
}

// A call goes on undisturbed after the service was told to stop, and the peer can
// still cancel it.
func TestStoppingCall(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	events := make(chan string)
	s := testService(nil)
	s.Interfaces[0].Methods["Wait"] = func(ctx context.Context, call *Call) error {
		events <- "started"
		<-call.Stopping()
		select {
		case <-ctx.Done():
			events <- "cancelled by the stop"
		case <-time.After(50 * time.Millisecond):
			events <- "goes on"
		}
		<-ctx.Done()
		return ctx.Err()
	}
	conn, theirs := socketPair(t)
	reads := make(chan struct{}, 8)
	ended := make(chan error, 1)
	go func() { ended <- s.ServeConn(ctx, &announcing{theirs, reads}) }()
	conn.Write([]byte(`{"method":"org.example.test.Wait"}` + "\x00"))
	receive(t, events, "start")
	receive(t, reads, "read of the request")
	receive(t, reads, "read that waits for the peer's end")
	stop()
	if got := receive(t, events, "answer"); got != "goes on" {
		t.Errorf("got %s, want goes on", got)
	}
	conn.Close()
	receive(t, ended, "end")
}

// announcing is a connection that says when a read begins.
type announcing struct {
	net.Conn
	reads chan<- struct{}
}

func (c *announcing) Read(b []byte) (int, error) {
	c.reads <- struct{}{}
	return c.Conn.Read(b)
}

// late is a connection on which the service is told to stop at the worst moment:
// just before it sets the deadline of its next read.
type late struct {
	net.Conn
	stop func()
	past chan struct{} // closed when the stop has set its deadline
	once sync.Once
}

func (c *late) SetReadDeadline(d time.Time) error {
	if d.Equal(past) {
		defer close(c.past)
		return c.Conn.SetReadDeadline(d)
	}
	c.once.Do(func() {
		c.stop()
		<-c.past
	})
	return c.Conn.SetReadDeadline(d)
}

func TestStopBeforeDeadline(t *testing.T) {
	ours, theirs := socketPair(t)
	defer ours.Close()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- testService(nil).ServeConn(ctx, &late{Conn: theirs, stop: stop, past: make(chan struct{})})
	}()
	if err := receive(t, ended, "end"); err != nil {
		t.Errorf("ServeConn: %v", err)
	}
}

func TestStoppedServiceTakesNothing(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	conn, ended := serve(t, ctx, testService(nil))
	if err := receive(t, ended, "end"); err != nil {
		t.Errorf("ServeConn: %v", err)
	}
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("the connection is still open")
	}
}

func TestPipelined(t *testing.T) {
	conn, _ := serve(t, context.Background(), testService(nil))
	const calls = 30 // nearly as much as the service reads ahead
	go conn.Write([]byte(strings.Repeat(good+"\x00", calls)))
	for i := range calls {
		if got, want := message(t, conn), `{"parameters":{"text":"hi"}}`; got != want {
			t.Fatalf("reply %d: got %s, want %s", i, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	conn, _ := serve(t, context.Background(), testService(nil))
	c := NewConn(conn)
	overhead := len(`{"method":"org.example.test.Echo","parameters":{"text":""}}`)
	for _, size := range []int{0, smallBuffer - overhead - 1, smallBuffer - overhead, smallBuffer, 32 << 10, MaxMessage - overhead} {
		var got echo
		text := strings.Repeat("x", size)
		if err := c.Call(context.Background(), "org.example.test.Echo", echo{Text: text}, &got); err != nil || got.Text != text {
			t.Errorf("%d bytes: got %d bytes, %v", size, len(got.Text), err)
		}
	}
	err := c.Call(context.Background(), "org.example.test.Echo", echo{Text: strings.Repeat("x", MaxMessage-overhead+1)}, nil)
	if !errors.Is(err, errTooLong) {
		t.Errorf("one byte over the limit: got %v, want %v", err, errTooLong)
	}
	if err := c.Call(context.Background(), "org.example.test.Echo", echo{}, nil); err != nil {
		t.Errorf("call after one that was not sent: %v", err)
	}
}

func TestMalformedEndsConnection(t *testing.T) {
	tests := map[string]string{
		"empty":             "\x00",
		"no JSON":           "hello\x00",
		"half an object":    good[:len(good)-1] + "\x00",
		"two objects":       good + good + "\x00",
		"trailing":          good + "x\x00",
		"array":             "[" + good + "]\x00",
		"null":              "null\x00",
		"string":            `"x"` + "\x00",
		"not UTF-8":         "{\"method\":\"a.b\xff\"}\x00",
		"200000 brackets":   strings.Repeat("[", 200000) + "\x00",
		"200000 objects":    strings.Repeat(`{"a":`, 40000) + "\x00",
		"over the limit":    `{"method":"` + strings.Repeat("x", MaxMessage) + `"}` + "\x00",
		"no end":            strings.Repeat(" ", MaxMessage+2),
		"HTTP":              "GET / HTTP/1.1\r\n\r\n\x00",
		"a length in front": "\x00\x00\x00\x3e" + good,
	}
	for name, raw := range tests {
		t.Run(name, func(t *testing.T) {
			conn, ended := serve(t, context.Background(), testService(nil))
			go conn.Write([]byte(raw))
			if err := receive(t, ended, "end"); !errors.Is(err, ErrMalformed) {
				t.Errorf("ServeConn: got %v, want %v", err, ErrMalformed)
			}
			if got, err := io.ReadAll(conn); len(got) > 0 {
				t.Errorf("got %q, %v, want no reply", got, err)
			}
		})
	}
}

func TestCutOff(t *testing.T) {
	conn, ended := serve(t, context.Background(), testService(nil))
	conn.Write([]byte(good))
	conn.Close()
	if err := receive(t, ended, "end"); !errors.Is(err, ErrMalformed) {
		t.Errorf("got %v, want %v", err, ErrMalformed)
	}
}

// One byte now and then keeps no connection: the clock starts with the first.
func TestSlowRequest(t *testing.T) {
	s := testService(nil)
	s.ReadTimeout, s.IdleTimeout = 100*time.Millisecond, time.Hour
	conn, ended := serve(t, context.Background(), s)
	exchange(t, conn, good+"\x00")
	start := time.Now()
	go func() {
		for i := range good {
			if _, err := conn.Write([]byte(good[i : i+1])); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond) // the slowness is what is tested
		}
	}()
	if err := receive(t, ended, "end"); !errors.Is(err, ErrSlow) {
		t.Errorf("got %v, want %v", err, ErrSlow)
	}
	if took := time.Since(start); took < 90*time.Millisecond || pace.Over(t, took, 5*time.Second) {
		t.Errorf("closed after %v, want about 100 ms", took)
	}
}

func TestSlowReader(t *testing.T) {
	s := testService(nil)
	s.ReadTimeout = 100 * time.Millisecond
	conn, ended := serve(t, context.Background(), s)
	request := `{"method":"org.example.test.Big","parameters":{"size":250000}}` + "\x00"
	go conn.Write([]byte(strings.Repeat(request, 20))) // less than is read ahead
	if err := receive(t, ended, "end"); !errors.Is(err, ErrSlow) {
		t.Errorf("got %v, want %v", err, ErrSlow)
	}
}

func TestIdle(t *testing.T) {
	s := testService(nil)
	s.IdleTimeout = 50 * time.Millisecond
	conn, ended := serve(t, context.Background(), s)
	exchange(t, conn, good+"\x00")
	if err := receive(t, ended, "end"); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

// A call that takes longer than both timeouts is not disturbed by them.
func TestLongCall(t *testing.T) {
	s := testService(nil)
	s.ReadTimeout, s.IdleTimeout = 10*time.Millisecond, 10*time.Millisecond
	s.Interfaces[0].Methods["Wait"] = func(ctx context.Context, call *Call) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		return call.Reply(nil)
	}
	conn, _ := serve(t, context.Background(), s)
	if got, want := exchange(t, conn, `{"method":"org.example.test.Wait"}`+"\x00"), `{"parameters":{}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// PERFORMANCE.md allows 12 KiB of the service's memory for each idle connection.
func TestIdleConnectionMemory(t *testing.T) {
	const connections = 100
	big := echo{Text: strings.Repeat("x", 100<<10)}
	conns := make([]net.Conn, connections)
	before := memory()
	for i := range conns {
		conns[i], _ = serve(t, context.Background(), testService(nil))
		c := NewConn(conns[i])
		if err := c.Call(context.Background(), "org.example.test.Echo", big, nil); err != nil {
			t.Fatal(err)
		}
	}
	if each := (memory() - before) / connections; each > 12<<10 {
		t.Errorf("%d bytes for an idle connection, both ends, want at most 12 KiB", each)
	} else {
		t.Logf("%d bytes for an idle connection, both ends", each)
	}
}

// memory is what heap and stacks use after a collection.
func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// 10^5 requests (fewer under the race detector) that cannot be answered leave no goroutine, no descriptor and no
// memory behind.
func TestMalformedFlood(t *testing.T) {
	frames := floodFrames()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := testService(nil)
	flood := func(n int) {
		for i := range n {
			client, err := net.Dial("unix", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			server, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			client.Write([]byte(frames[i%len(frames)]))
			client.(*net.UnixConn).CloseWrite()
			s.ServeConn(context.Background(), server)
			client.Close()
		}
	}
	flood(1000)
	files, routines, bytes := openFiles(t), runtime.NumGoroutine(), memory()
	flood(pace.Share(10_000, 100_000))
	if got := openFiles(t); got > files {
		t.Errorf("%d open files, %d before", got, files)
	}
	if got := runtime.NumGoroutine(); got > routines+1 {
		t.Errorf("%d goroutines, %d before", got, routines)
	}
	if grown := memory() - bytes; grown > 2<<20 {
		t.Errorf("memory grew by %d bytes", grown)
	}
}

// floodFrames returns the good request with each of its bytes changed, and cut
// off at each.
func floodFrames() (frames []string) {
	for i := range good {
		changed := []byte(good + "\x00")
		changed[i] ^= 0x15
		frames = append(frames, string(changed), good[:i], good[:i]+"\x00", "\x00"+good)
	}
	return frames
}
