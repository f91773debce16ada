package keyring

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/bus"
	"holdfast/test/pace"
)

var background = context.Background()

func nothing(context.Context) ([]byte, error) { return nil, nil }

// A call that hangs costs its caller the deadline, later ones nothing, and no more
// than one goroutine; when it is over, the guard is as before.
func TestHungCall(t *testing.T) {
	g := newGuard()
	release := make(chan struct{})
	ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
	defer cancel()
	_, err := g.do(ctx, func(context.Context) ([]byte, error) { <-release; return []byte("late"), nil })
	if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the one that hangs: %v", err)
	}
	before, start := runtime.NumGoroutine(), time.Now()
	for range 1000 {
		if _, err := g.do(background, nothing); !errors.Is(err, ErrTimeout) {
			t.Fatalf("behind the one that hangs: %v", err)
		}
	}
	if took := time.Since(start); pace.Over(t, took, callTimeout/2) {
		t.Errorf("it took %v to be told", took)
	}
	if now := runtime.NumGoroutine(); now > before {
		t.Errorf("%d goroutines, %d before", now, before)
	}
	close(release)
	for g.busy() {
		runtime.Gosched()
	}
	if _, err := g.do(background, nothing); err != nil {
		t.Errorf("when it is over: %v", err)
	}
}

func (g *guard) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running != nil
}

// Callers at the same time wait for each other, and one that will not wait gives up.
func TestTurns(t *testing.T) {
	g := newGuard()
	inside := 0
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			_, err := g.do(background, func(context.Context) ([]byte, error) {
				inside++
				defer func() { inside-- }()
				runtime.Gosched()
				if inside != 1 {
					return nil, errors.New("two at once")
				}
				return nil, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	release, in := make(chan struct{}), make(chan struct{})
	all.Go(func() {
		if _, err := g.do(background, func(context.Context) ([]byte, error) { close(in); <-release; return nil, nil }); err != nil {
			t.Error(err)
		}
	})
	<-in
	ctx, cancel := context.WithCancel(background)
	cancel()
	if _, err := g.do(ctx, nothing); !errors.Is(err, ErrTimeout) || !errors.Is(err, context.Canceled) {
		t.Errorf("would not wait: %v", err)
	}
	close(release)
	all.Wait()
}

func TestPanic(t *testing.T) {
	g := newGuard()
	_, err := g.do(background, func(context.Context) ([]byte, error) { panic("a secret") })
	if !errors.Is(err, errMalformed) || strings.Contains(err.Error(), "a secret") {
		t.Errorf("got %v", err)
	}
	if _, err := g.do(background, nothing); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A bus that is not at a Unix socket of this machine is not used, and none is started.
func TestBusAddresses(t *testing.T) {
	for _, address := range []string{
		"", "autolaunch:", "tcp:host=127.0.0.1,port=1", "unixexec:path=/bin/sh", "unix:path=/x;tcp:host=h", "disabled:",
	} {
		t.Setenv("DBUS_SESSION_BUS_ADDRESS", address)
		if _, err := New().Get(t.Context(), "name"); !errors.Is(err, ErrNoService) || !errors.Is(err, bus.ErrAddress) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("")
	f.Add("MTIzNDU2")
	f.Add(base64.StdEncoding.EncodeToString(make([]byte, 2*MaxSecret)))
	f.Add("not base64")
	f.Fuzz(func(t *testing.T, text string) {
		secret, err := decode(text)
		if err != nil {
			if len(text) > 4 && strings.Contains(err.Error(), text) {
				t.Error("the error shows what is kept")
			}
			return
		}
		again, err := decode(base64.StdEncoding.EncodeToString(secret))
		if err != nil || !bytes.Equal(again, secret) || len(secret) > MaxSecret+2 {
			t.Errorf("got %d bytes, again %v", len(secret), err)
		}
	})
}
