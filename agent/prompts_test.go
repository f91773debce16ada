package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/agent/prompt"
)

// asker asks each question that is put as a test says, and counts.
type asker struct {
	prompts
	t     *testing.T
	begun atomic.Int32
}

func newAsker(t *testing.T) *asker {
	a := &asker{t: t}
	a.init()
	return a
}

// put puts a question about what whose answer comes after d, and returns the outcome.
func (a *asker) put(ctx context.Context, what, share string, d time.Duration, answer error) <-chan error {
	result := make(chan error, 1)
	go func() {
		result <- a.prompts.put(ctx, &request{}, question{what: what, share: share, ask: func(one *asking) error {
			a.begun.Add(1)
			select {
			case <-time.After(d):
				return answer
			case <-one.ctx.Done():
				return &unanswered{promptWithdrawn, context.Cause(one.ctx)}
			}
		}})
	}()
	synctest.Wait()
	return result
}

func (a *asker) wantBegun(n int) {
	a.t.Helper()
	synctest.Wait()
	if begun := int(a.begun.Load()); begun != n {
		a.t.Errorf("%d prompts have begun, want %d", begun, n)
	}
}

var closedPrompt = &unanswered{promptClosed, prompt.ErrClosed}

// A closed prompt keeps others about the same thing away for a few seconds only.
func TestQuietEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t)
		if err := <-a.put(t.Context(), "x", "", 0, closedPrompt); !errors.Is(err, prompt.ErrClosed) {
			t.Fatal(err)
		}
		if err := <-a.put(t.Context(), "x", "", 0, nil); !errors.Is(err, errJustClosed) {
			t.Errorf("right after: %v, want errJustClosed", err)
		}
		if err := <-a.put(t.Context(), "y", "", 0, nil); err != nil {
			t.Errorf("about something else: %v", err)
		}
		time.Sleep(quietTime)
		if err := <-a.put(t.Context(), "x", "", 0, nil); err != nil {
			t.Errorf("later: %v", err)
		}
		if len(a.closed) != 0 || len(a.open) != 0 {
			t.Errorf("%d closed and %d open prompts are remembered, want none", len(a.closed), len(a.open))
		}
	})
}

// A request that does not share a question waits for its end, and asks then.
func TestOtherQuestionsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t)
		one := a.put(t.Context(), "x", "one", time.Second, nil)
		other := a.put(t.Context(), "x", "other", time.Second, errors.New("other"))
		alone := a.put(t.Context(), "x", "", time.Second, errors.New("alone"))
		more := a.put(t.Context(), "x", "one", time.Second, nil)
		a.wantBegun(1)
		time.Sleep(time.Second)
		a.wantBegun(2)
		if err := errors.Join(<-one, <-more); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		a.wantBegun(3)
		if e1, e2 := <-other, <-alone; fmt.Sprint(e1, e2) != "other alone" {
			t.Errorf("the others got %v and %v", e1, e2)
		}
	})
}

// A request that comes while a prompt is being withdrawn is not cancelled with it.
func TestComingAfterTheLastLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t)
		slow := make(chan struct{})
		ctx, leave := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			first <- a.prompts.put(ctx, &request{}, question{what: "x", share: "s", ask: func(one *asking) error {
				a.begun.Add(1)
				<-slow // a prompt that takes its time to go away
				return &unanswered{promptWithdrawn, context.Cause(one.ctx)}
			}})
		}()
		synctest.Wait()
		leave()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		next := a.put(t.Context(), "x", "s", 0, nil)
		a.wantBegun(1)
		close(slow)
		if err := <-next; err != nil {
			t.Error(err)
		}
		a.wantBegun(2)
	})
}

func TestClosingThePromptsEndsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t)
		one, other := a.put(t.Context(), "x", "", time.Hour, nil), a.put(t.Context(), "y", "", time.Hour, nil)
		waits := a.put(t.Context(), "x", "", time.Hour, nil)
		a.close()
		for _, result := range []<-chan error{one, other, waits} {
			if err := <-result; !errors.Is(err, errStopping) {
				t.Errorf("got %v, want that the agent stops", err)
			}
		}
		if err := <-a.put(t.Context(), "z", "", 0, nil); !errors.Is(err, errStopping) {
			t.Errorf("afterwards: %v", err)
		}
		a.all.Wait()
		a.wantBegun(2)
	})
}
