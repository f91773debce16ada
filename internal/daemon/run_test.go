package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a daemon that reports the calls of its methods.
type recorder struct {
	did    chan string
	reload error
}

func (r *recorder) Alive() error  { return nil }
func (r *recorder) CheckSockets() {}

func (r *recorder) Reload(context.Context) error {
	r.did <- "reload"
	return r.reload
}

func (r *recorder) Shutdown(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New("for ever")
	}
	r.did <- "shutdown"
	return nil
}

func TestSignals(t *testing.T) {
	signals := make(chan os.Signal, 2)
	r := &recorder{did: make(chan string, 8), reload: errors.New("line 3")}
	var log strings.Builder
	ended := make(chan error)
	go func() {
		s := &Service{
			Daemon: r, Keeps: "the old policy stays in force",
			Start: func(context.Context) { r.did <- "start" },
			Tasks: []func(context.Context) error{func(ctx context.Context) error {
				<-ctx.Done()
				r.did <- "served"
				return nil
			}},
		}
		ended <- s.run(nil, signals, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	signals <- syscall.SIGHUP
	for _, want := range []string{"start", "reload"} {
		if got := <-r.did; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	signals <- syscall.SIGTERM
	if got := map[string]bool{<-r.did: true, <-r.did: true}; !got["shutdown"] || !got["served"] {
		t.Errorf("got %v, want the end of serving, and shutdown", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log.String(), "reload: the old policy stays in force") || !strings.Contains(log.String(), "line 3") {
		t.Errorf("the log does not say why: %s", &log)
	}
}

func TestFailureEnds(t *testing.T) {
	broken := errors.New("no more descriptors")
	s := &Service{
		Daemon: &recorder{did: make(chan string, 8)},
		Tasks:  []func(context.Context) error{func(context.Context) error { return broken }},
	}
	if err := s.run(nil, make(chan os.Signal), slog.New(slog.DiscardHandler)); !errors.Is(err, broken) {
		t.Errorf("got %v, want why it failed", err)
	}
}
