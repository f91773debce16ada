package client

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"holdfast/internal/varlink"
)

// newTestPool returns a pool of connections without a server, and counts those made.
func newTestPool(t *testing.T) (*pool, *int) {
	t.Helper()
	made := 0
	p := newPool(func(context.Context) (*varlink.Conn, error) {
		made++
		near, far := net.Pipe()
		t.Cleanup(func() { far.Close() })
		return varlink.NewConn(near), nil
	})
	t.Cleanup(p.close)
	return p, &made
}

// soon is a context for what must not take long.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func get(t *testing.T, p *pool, fresh bool) *varlink.Conn {
	t.Helper()
	conn, err := p.get(soon(t), fresh)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestPoolKeeps(t *testing.T) {
	p, made := newTestPool(t)
	a := get(t, p, false)
	p.put(a, true)
	b := get(t, p, false)
	if a != b || *made != 1 {
		t.Errorf("a usable connection was not used again; %d were made", *made)
	}
	p.put(b, false)
	if c := get(t, p, false); c == b || *made != 2 {
		t.Errorf("an unusable connection was used again; %d were made", *made)
	} else {
		p.put(c, true)
	}
	if d := get(t, p, true); *made != 3 {
		t.Error("no fresh connection when one was asked for")
	} else {
		p.put(d, true)
	}
}

// The agent closes what is idle for 30 s; using that would cost a try.
func TestPoolForgetsOldConnections(t *testing.T) {
	p, made := newTestPool(t)
	a, b := get(t, p, false), get(t, p, false)
	p.put(a, true)
	p.put(b, true)
	p.idle[0].since = time.Now().Add(-idleTime - time.Second)
	p.idle[1].since = time.Now().Add(-idleTime + 10*time.Second)
	if c := get(t, p, false); c != b {
		t.Error("the connection used last is not used first")
	} else {
		p.put(c, true)
	}
	if len(p.idle) != 1 {
		t.Errorf("%d connections are kept, want 1", len(p.idle))
	}
	p.idle[0].since = time.Now().Add(-idleTime - time.Second)
	p.put(get(t, p, false), true)
	if *made != 3 {
		t.Errorf("%d connections were made, want a new one in place of the old", *made)
	}
	if err := a.Call(soon(t), "a.B", nil, nil); !errors.Is(err, varlink.ErrConnectionLost) {
		t.Errorf("the old connection was left open: %v", err)
	}
}

func TestPoolLimit(t *testing.T) {
	p, made := newTestPool(t)
	var all []*varlink.Conn
	for range maxConnections {
		all = append(all, get(t, p, false))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.get(ctx, false); !errors.Is(err, context.Canceled) || *made != maxConnections {
		t.Errorf("got %v with %d connections, want to wait", err, *made)
	}
	waiting := make(chan *varlink.Conn)
	go func() {
		conn, _ := p.get(context.Background(), false)
		waiting <- conn
	}()
	p.put(all[0], true)
	if got := <-waiting; got != all[0] {
		t.Error("the one who waited did not get the connection given back")
	}
	for _, conn := range all {
		p.put(conn, false)
	}
}

// A place is not lost when no connection can be made.
func TestPoolDialFails(t *testing.T) {
	down := errors.New("down")
	p := newPool(func(context.Context) (*varlink.Conn, error) { return nil, down })
	for range maxConnections + 1 {
		if _, err := p.get(soon(t), false); err != down {
			t.Fatalf("got %v, want the dialler's error", err)
		}
	}
	p.close()
	if _, err := p.get(context.Background(), false); err != errClosed {
		t.Errorf("after close: got %v", err)
	}
}

func TestPoolCloseWhileInUse(t *testing.T) {
	p, _ := newTestPool(t)
	conn := get(t, p, false)
	p.close()
	p.put(conn, true)
	if err := conn.Call(soon(t), "a.B", nil, nil); !errors.Is(err, varlink.ErrConnectionLost) {
		t.Errorf("got %v, want the connection closed", err)
	}
}
