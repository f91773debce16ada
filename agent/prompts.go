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

// prompts lets a person be asked for one thing once at a time, however many want
// it: they share the prompt and what comes of it. Use init before anything else.
type prompts struct {
	all sync.WaitGroup // what is being asked

	mu     sync.Mutex // never held while a person thinks
	open   map[string]*asking
	closed map[string]time.Time // when a person closed the last prompt about something
	over   bool
}

// A question is one thing that a person is asked for.
type question struct {
	what   string              // is asked for once at a time
	share  string              // those with the same share the answer; empty: nobody does
	insist bool                // ask although a person closed such a prompt a moment ago
	ask    func(*asking) error // asks, and does with the answer what is to be done
}

// asking is a question that is put to a person. It is called off when nobody waits
// for it any more.
type asking struct {
	question
	ctx   context.Context
	end   context.CancelCauseFunc
	first *request      // whose person is asked
	done  chan struct{} // closed when it is over
	err   error         // what came of it, then
	shown atomic.Bool   // the person has been reached for

	waiting []*request // prompts.mu guards it
}

// quiet is how long a prompt that a person closed keeps others about the same
// thing away: programs try again faster than a person can say no.
const quiet = 5 * time.Second

// errQuiet is that a person closed such a prompt a moment ago.
var errQuiet = errors.New("a person closed such a prompt a moment ago")

// errStopping is what every prompt ends with when the agent does.
var errStopping = &fault.Error{Kind: fault.Busy, Message: "the agent is stopping", RetryAfter: time.Second}

// unseen is why nobody waits any more for a prompt that was not shown: it waited
// for the device.
func unseen(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &fault.Error{Kind: fault.Deadline, Message: "the device did not say in time whether it has the key", Hint: "`holdfast status` shows the device's state"}
	}
	return err
}

func (p *prompts) init() {
	p.open, p.closed = map[string]*asking{}, map[string]time.Time{}
}

// put has q asked, or waits for the answer to the same question that is being
// asked already, until ctx ends. Who leaves takes the prompt from nobody else.
// Where the person of the first who asked cannot be reached, those of others may
// be.
func (p *prompts) put(ctx context.Context, r *request, q question) error {
	for {
		if err := ctx.Err(); err != nil {
			return err // who has left asks for nothing
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
				return unseen(ctx.Err())
			}
			return ctx.Err()
		}
	}
}

// join returns the asking that r has to wait for: one that it takes part in, its
// own or a shared one, or another that has to end first.
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
	if closed, ok := p.closed[q.what]; ok && !q.insist && time.Since(closed) < quiet {
		return nil, false, errQuiet
	}
	a = &asking{question: q, first: r, done: make(chan struct{}), waiting: []*request{r}}
	a.ctx, a.end = context.WithCancelCause(context.Background())
	p.open[q.what] = a
	p.all.Go(func() { p.run(a) })
	return a, true, nil
}

// run asks, and tells those who wait what came of it.
func (p *prompts) run(a *asking) {
	err := a.ask(a)
	a.end(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.closed, func(_ string, at time.Time) bool { return time.Since(at) >= quiet })
	if outcomeOfPrompt(err) == promptClosed {
		p.closed[a.what] = time.Now()
	}
	delete(p.open, a.what)
	a.err = err
	close(a.done)
}

// leave is for who does not wait for a any more. The last one calls the prompt
// off, and the reason why is what became of it.
func (p *prompts) leave(a *asking, r *request, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(a.waiting, r)
	if i < 0 {
		return // it waited for somebody else's prompt to end
	}
	if a.waiting = slices.Delete(a.waiting, i, i+1); len(a.waiting) == 0 {
		a.end(why)
	}
}

// firstOf returns the first of those who wait for a and may have the answer, or
// nil.
func (p *prompts) firstOf(a *asking, may func(*request) bool) *request {
	p.mu.Lock()
	waiting := slices.Clone(a.waiting)
	p.mu.Unlock()
	if i := slices.IndexFunc(waiting, may); i >= 0 {
		return waiting[i]
	}
	return nil
}

// number is how many prompts are open.
func (p *prompts) number() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// close calls every prompt off, and lets nobody be asked from now on.
func (p *prompts) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, a := range p.open {
		a.end(errStopping)
	}
}
