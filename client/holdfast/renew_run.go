package main

import (
	"context"
	"strings"
	"time"
)

// restTime is how long a key is left alone after a renewal, whatever the new
// certificate's times are: a signer whose clock is far off must not be asked
// without end.
const restTime = time.Minute

// retryAfter is when a run that goes on tries again what has failed.
const retryAfter = 5 * time.Minute

// step is how often the clock is looked at while waiting: timers stand still
// while the machine sleeps, and a moment is one of the clock.
const step = 5 * time.Second

// dueRun is one run of `renew --due`. One goroutine decides; each renewal has one
// of its own, so that one that waits for its approval keeps no other from its
// moment.
type dueRun struct {
	app      *app
	options  *dueOptions
	all      []*renewing
	failures int
	done     chan finished
	underway int
}

// finished is how a renewal ended.
type finished struct {
	renewing *renewing
	err      error
}

// run renews what is due, and goes on until nothing is under way and nothing is
// planned as soon as --within says.
func (d *dueRun) run(ctx context.Context) error {
	for {
		next := d.start(ctx)
		if d.underway == 0 && (next.IsZero() || ctx.Err() != nil) {
			break
		}
		d.wait(ctx, next)
	}
	if isInterrupted(ctx) {
		return ctx.Err()
	}
	if d.options.prune {
		d.failures += d.app.pruneAll(ctx, d.all)
	}
	return d.app.renewed(d.all, d.failures, d.options.json)
}

// start starts what is due, and returns the next moment that is planned soon
// enough, or none.
func (d *dueRun) start(ctx context.Context) (next time.Time) {
	now := time.Now()
	for _, r := range d.all {
		if r.busy {
			continue
		}
		if !r.after.After(now) {
			d.look(ctx, r)
		}
		at := r.planned
		if r.after.After(at) {
			at = r.after
		}
		switch {
		case r.failed != nil: // tried again only while others are waited for
		case !at.After(now) && ctx.Err() == nil:
			r.busy = true
			d.underway++
			go func() { d.done <- finished{r, r.renew(ctx)} }()
		case !at.After(now.Add(d.options.within)) && (next.IsZero() || at.Before(next)):
			next = at
		}
	}
	return next
}

// look finds out when a renewal is planned.
func (d *dueRun) look(ctx context.Context, r *renewing) {
	r.failed = nil
	if err := r.look(ctx); err != nil {
		d.failures += r.fail(err)
	}
}

// wait waits until a renewal has ended, the clock says next, or ctx ends and
// nothing is under way.
func (d *dueRun) wait(ctx context.Context, next time.Time) {
	gone := ctx.Done()
	if d.underway > 0 {
		gone = nil // each renewal ends with ctx
	}
	for next.IsZero() || time.Now().Round(0).Before(next.Round(0)) { // without the monotonic clock
		left := step
		if !next.IsZero() {
			left = min(left, time.Until(next.Round(0)))
		}
		timer := time.NewTimer(left)
		select {
		case f := <-d.done:
			timer.Stop()
			d.settle(ctx, f)
			return
		case <-gone:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// settle notes and tells how a renewal ended. A run can go on for as long as
// certificates are short-lived, so what is to be deleted is not left to its end.
func (d *dueRun) settle(ctx context.Context, f finished) {
	r := f.renewing
	d.underway--
	r.busy, r.after = false, time.Now().Add(restTime)
	if f.err == nil && !d.options.json {
		f.err = r.print()
	}
	if f.err != nil {
		d.failures += r.fail(f.err)
	} else if d.options.prune {
		d.failures += d.app.pruneAll(ctx, []*renewing{r})
	}
}

// fail notes and tells a failure, in one line for logs.
func (r *renewing) fail(err error) int {
	r.failed, r.after = aboutKey(r.profile.Key, err), time.Now().Add(retryAfter)
	p := explain(r.failed)
	text := r.profile.Name + ": " + strings.ReplaceAll(p.message, "\n", "; ")
	if p.hint != "" {
		text += " (" + p.hint + ")"
	}
	r.app.tell("error", text)
	return 1
}
