package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// service is how long work takes in these tests, in the time of their bubbles.
const service = 60 * time.Millisecond

func sign(context.Context) error {
	time.Sleep(service)
	return nil
}

// flood keeps n requests of a peer waiting or running until ctx ends.
func flood(ctx context.Context, q *Queue, peer string, n int) {
	for i := range n {
		go func() {
			for ctx.Err() == nil {
				q.Do(ctx, Caller{Peer: peer, Process: fmt.Sprint(peer, i)}, sign)
			}
		}()
	}
}

// waits measures how long a caller with one request at a time waits for each,
// its own service included, in units of the service time, sorted.
func waits(t *testing.T, q *Queue, c Caller, n int, pause func(int) time.Duration) []float64 {
	t.Helper()
	var all []float64
	for i := range n {
		time.Sleep(pause(i))
		start := time.Now()
		if err := q.Do(t.Context(), c, sign); err != nil {
			t.Fatal(err)
		}
		all = append(all, float64(time.Since(start))/float64(service))
	}
	slices.Sort(all)
	return all
}

// TestPoliteCaller measures one caller against a peer that keeps 31 connections
// busy, and against a second uid with a thousand requests (THREATS row 61).
func TestPoliteCaller(t *testing.T) {
	spread := func(i int) time.Duration { return time.Duration(i*37%100) * time.Millisecond }
	for _, c := range []struct {
		name   string
		busy   map[string]int
		pause  func(int) time.Duration
		median float64 // at most
		most   float64
	}{
		{"alone", nil, spread, 1, 1},
		{"against 31 connections", map[string]int{"b": 31}, spread, 2, 2},
		{"against 31, with no pause", map[string]int{"b": 31}, func(int) time.Duration { return 0 }, 2, 2},
		{"against 1000", map[string]int{"b": 1000}, spread, 2, 2},
		{"against three peers of 31", map[string]int{"b": 31, "c": 31, "d": 31}, spread, 4, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := open(t, Limits{PerPeer: 1000, Total: 4000})
				ctx, stop := context.WithCancel(context.Background())
				for peer, n := range c.busy {
					flood(ctx, q, peer, n)
				}
				synctest.Wait()
				got := waits(t, q, Caller{Peer: "polite"}, 100, c.pause)
				stop()
				if median, most := got[50], got[99]; median > c.median || most > c.most {
					t.Errorf("waits %.2f T in the median and %.2f T at most, want %.2f and %.2f", median, most, c.median, c.most)
				}
			})
		})
	}
}

// TestPoliteProcess is the same within one peer: its processes share its turns.
func TestPoliteProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, Limits{})
		ctx, stop := context.WithCancel(context.Background())
		for range 31 {
			go func() {
				for ctx.Err() == nil {
					q.Do(ctx, Caller{Peer: "uid:1", Process: "busy"}, sign)
				}
			}()
		}
		synctest.Wait()
		got := waits(t, q, Caller{Peer: "uid:1", Process: "polite"}, 50, func(i int) time.Duration { return time.Duration(i) * time.Millisecond })
		stop()
		if most := got[len(got)-1]; most > 2 {
			t.Errorf("waits up to %.2f T, want 2", most)
		}
	})
}

// TestOrder gives the order in which waiting requests are served.
func TestOrder(t *testing.T) {
	for _, c := range []struct{ name, come, want string }{
		{"one process", "a1 a1' a1''", "a1 a1' a1''"},
		{"two processes", "a1 a1' a1'' a2 a2'", "a1 a2 a1' a2' a1''"},
		{"two peers", "a1 a1' a1'' b1 b1'", "a1 b1 a1' b1' a1''"},
		{"processes do not earn turns", "a1 a2 a3 a4 b1 b1'", "a1 b1 a2 b1' a3 a4"},
		{"three peers", "a1 a1' b1 b1' c1 c1'", "a1 b1 c1 a1' b1' c1'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := open(t, Limits{})
			release := block(t, q)
			var served []string
			var all sync.WaitGroup
			for i, name := range strings.Fields(c.come) {
				all.Go(func() {
					q.Do(context.Background(), Caller{Peer: name[:1], Process: name[:2]}, func(context.Context) error {
						served = append(served, name)
						return nil
					})
				})
				waitFor(t, q, i+1)
			}
			release()
			all.Wait()
			if got := strings.Join(served, " "); got != c.want {
				t.Errorf("served %s, want %s", got, c.want)
			}
		})
	}
}

func BenchmarkDo(b *testing.B) {
	q := New(Limits{})
	defer q.Close(context.Background())
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for b.Loop() {
		if err := q.Do(ctx, Caller{Peer: "uid:1000", Process: "4711/99"}, nothing); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDoContended(b *testing.B) {
	q := New(Limits{})
	defer q.Close(context.Background())
	b.SetParallelism(16)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			q.Do(context.Background(), Caller{Peer: "uid:1000", Process: "4711/99"}, nothing)
		}
	})
}
