package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/fault"
)

// prompts shows at most one prompt about a thing at a time. Requests with the same
// question share the prompt and its outcome. Use init before anything else.
type prompts struct {
	all sync.WaitGroup // questions in progress

	mu     sync.Mutex // never held while a user thinks
	open   map[string]*asking
	closed map[string]time.Time // when a user closed the last prompt about something
	over   bool
}

// A question is one thing to ask a user for.
type question struct {
	what   string              // the thing: it has at most one prompt at a time
	share  string              // questions with the same share use one answer; empty: not shared
	insist bool                // ask although a user closed such a prompt a moment ago
	ask    func(*asking) error // asks, and acts on the answer
}

// asking is a question in progress. It is cancelled when no request waits for it any
// more.
type asking struct {
	question
	ctx   context.Context
	end   context.CancelCauseFunc
	first *request      // the request that began it: its user is asked
	done  chan struct{} // closed at the end
	err   error         // the outcome, once done is closed
	shown atomic.Bool   // the user has been asked

	waiting []*request // prompts.mu guards it
}

// quietTime is how long no prompt about a thing comes after a user closed one: programs
// try again faster than a user can refuse.
const quietTime = 5 * time.Second

// errJustClosed means that a user closed a prompt about the same thing a moment ago.
var errJustClosed = errors.New("the user closed such a prompt a moment ago")

// errStopping ends every prompt when the agent stops.
var errStopping = &fault.Error{Kind: fault.Busy, Message: "the agent is stopping", RetryAfter: time.Second}

// notShown returns the error for a request that left before its prompt was shown: until
// then the prompt waits for the device.
func notShown(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &fault.Error{Kind: fault.Deadline, Message: "the device did not confirm in time that it has the key", Hint: "`holdfast status` shows the device's state"}
	}
	return err
}

func (p *prompts) init() {
	p.open, p.closed = map[string]*asking{}, map[string]time.Time{}
}

// put asks q, or waits for the outcome of the same question in progress, until ctx
// ends. A request that leaves does not end the prompt for the others. When the user
// of the first request cannot be reached, put asks again for the next request, whose
// user may be another one.
func (p *prompts) put(ctx context.Context, r *request, q question) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		a, joined, err := p.join(r, q)
		if err != nil {
			return err
		}
		select {
		case <-a.done:
			if joined && (a.first == r || outcomeOfPrompt(a.err) != promptUnreachable) {
				return a.err
			}
		case <-ctx.Done():
			p.leave(a, r, ctx.Err())
			if !a.shown.Load() {
				return notShown(ctx.Err())
			}
			return ctx.Err()
		}
	}
}

// join returns the asking that r waits for, and whether r takes part in it. Where r does
// not, that asking has to end before r can begin its own.
func (p *prompts) join(r *request, q question) (a *asking, joined bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil, false, errStopping
	}
	if a = p.open[q.what]; a != nil {
		if joined = q.share != "" && a.share == q.share && len(a.waiting) > 0; joined {
			a.waiting = append(a.waiting, r)
		}
		return a, joined, nil
	}
	if closed, ok := p.closed[q.what]; ok && !q.insist && time.Since(closed) < quietTime {
		return nil, false, errJustClosed
	}
	a = &asking{question: q, first: r, done: make(chan struct{}), waiting: []*request{r}}
	a.ctx, a.end = context.WithCancelCause(context.Background())
	p.open[q.what] = a
	p.all.Go(func() { p.run(a) })
	return a, true, nil
}

// run asks, and gives the outcome to the requests that wait.
func (p *prompts) run(a *asking) {
	err := a.ask(a)
	a.end(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.closed, func(_ string, at time.Time) bool { return time.Since(at) >= quietTime })
	if outcomeOfPrompt(err) == promptClosed {
		p.closed[a.what] = time.Now()
	}
	delete(p.open, a.what)
	a.err = err
	close(a.done)
}

// leave notes that r does not wait for a any more. When r was the last, leave cancels
// the prompt with the cause why.
func (p *prompts) leave(a *asking, r *request, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(a.waiting, r)
	if i < 0 {
		return // r took no part in it
	}
	if a.waiting = slices.Delete(a.waiting, i, i+1); len(a.waiting) == 0 {
		a.end(why)
	}
}

// firstOf returns the first request that waits for a and for which may is true, or nil.
func (p *prompts) firstOf(a *asking, may func(*request) bool) *request {
	p.mu.Lock()
	waiting := slices.Clone(a.waiting)
	p.mu.Unlock()
	if i := slices.IndexFunc(waiting, may); i >= 0 {
		return waiting[i]
	}
	return nil
}

// number returns how many prompts are open.
func (p *prompts) number() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// close cancels every prompt and rejects later questions.
func (p *prompts) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, a := range p.open {
		a.end(errStopping)
	}
}
