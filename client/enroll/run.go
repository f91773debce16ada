package enroll

import (
	"context"
	"errors"
	"time"
)

// restTime is how long a key is left alone after a renewal, whatever the times of
// the new certificate are: a signer whose clock is wrong must not be asked in a loop.
const restTime = time.Minute

// retryAfter is the time until a run that is still waiting retries a failed renewal.
const retryAfter = 5 * time.Minute

// step is how often a run looks at the clock while it waits: timers stand still
// while the machine sleeps, and a planned moment is one of the wall clock.
const step = 5 * time.Second

// A Run renews the certificates that are due. One goroutine decides and calls the
// functions below; each renewal has a goroutine of its own, so that one that waits
// for its approval delays no other.
type Run struct {
	Renewals []*Renewal
	Within   time.Duration // wait for renewals that are planned this soon
	Prune    bool          // delete generations whose certificate expired more than a day ago

	Renewed func(*Renewal) error // its error counts as a failure of the renewal
	Failed  func(*Renewal)       // called for each failure, which is in the renewal
	Deleted func(r *Renewal, key string)

	failures int
	done     chan finished
	inFlight int
}

// finished is the end of a renewal.
type finished struct {
	renewal *Renewal
	err     error
}

// Do renews the certificates that are due, and returns when nothing is in flight and no
// renewal is planned within Within. It returns the number of failures, and an error only
// when ctx was cancelled.
func (d *Run) Do(ctx context.Context) (failures int, err error) {
	d.done = make(chan finished)
	for {
		next := d.start(ctx)
		if d.inFlight == 0 && (next.IsZero() || ctx.Err() != nil) {
			break
		}
		d.wait(ctx, next)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return d.failures, ctx.Err()
	}
	if d.Prune {
		for _, r := range d.Renewals {
			d.prune(ctx, r)
		}
	}
	return d.failures, nil
}

// start starts what is due, and returns the next moment that is planned soon
// enough, or none.
func (d *Run) start(ctx context.Context) (next time.Time) {
	now := time.Now()
	for _, r := range d.Renewals {
		if r.busy {
			continue
		}
		if !r.notBefore.After(now) {
			d.look(ctx, r)
		}
		at := r.Planned
		if r.notBefore.After(at) {
			at = r.notBefore
		}
		switch {
		case r.Failed != nil: // retried only while others are waited for
		case !at.After(now) && ctx.Err() == nil:
			r.busy = true
			d.inFlight++
			go func() { d.done <- finished{r, r.renew(ctx)} }()
		case !at.After(now.Add(d.Within)) && (next.IsZero() || at.Before(next)):
			next = at
		}
	}
	return next
}

// look finds out when a renewal is planned.
func (d *Run) look(ctx context.Context, r *Renewal) {
	r.Failed = nil
	if err := r.look(ctx); err != nil {
		d.fail(r, err)
	}
}

// wait waits until a renewal has ended, the clock says next, or ctx ends and
// nothing is in flight.
func (d *Run) wait(ctx context.Context, next time.Time) {
	cancelled := ctx.Done()
	if d.inFlight > 0 {
		cancelled = nil // each renewal ends with ctx
	}
	for next.IsZero() || time.Now().Round(0).Before(next.Round(0)) { // without the monotonic clock
		left := step
		if !next.IsZero() {
			left = min(left, time.Until(next.Round(0)))
		}
		select {
		case f := <-d.done:
			d.settle(ctx, f)
			return
		case <-cancelled:
			return
		case <-time.After(left):
		}
	}
}

// settle handles the end of a renewal. Old keys are deleted here and not only at the
// end of the run, which may be far off where certificates are short-lived.
func (d *Run) settle(ctx context.Context, f finished) {
	r := f.renewal
	d.inFlight--
	r.busy, r.notBefore = false, time.Now().Add(restTime)
	if f.err == nil {
		f.err = d.Renewed(r)
	}
	switch {
	case f.err != nil:
		d.fail(r, f.err)
	case d.Prune:
		d.prune(ctx, r)
	}
}

// fail counts and reports a failure.
func (d *Run) fail(r *Renewal, err error) {
	r.Failed, r.notBefore = err, time.Now().Add(retryAfter)
	d.failures++
	d.Failed(r)
}
