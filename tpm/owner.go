package tpm

import (
	"context"
	"errors"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// Default timeouts for callers without a deadline. Making an RSA key takes a chip up to
// minutes, anything else less than a second.
const (
	requestTimeout = 30 * time.Second
	rsaTimeout     = 5 * time.Minute
)

// attempts bounds how often one operation starts over: a restarted software
// TPM costs one for the closed connection and one for TPM_RC_INITIALIZE.
const attempts = 3

// run makes the caller the owner of the device and runs op. It repeats op from the
// start after a closed connection, a reset, or a handle that is no longer valid. op
// must be safe to repeat. A device that is known to be wedged gets no op.
func (t *TPM) run(ctx context.Context, wait time.Duration, op func(context.Context) error) error {
	came := time.Now()
	return t.owning(ctx, wait, func(ctx context.Context) error {
		if err := t.answers(ctx, came); err != nil {
			return err
		}
		return t.attempt(ctx, op)
	})
}

// owning calls f while the caller owns the device.
func (t *TPM) owning(ctx context.Context, wait time.Duration, f func(context.Context) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	if err := t.acquire(ctx); err != nil {
		return t.explain(err)
	}
	defer t.release()
	return f(ctx)
}

// attempt runs op, again where that can help, and notes the outcome as a state.
func (t *TPM) attempt(ctx context.Context, op func(context.Context) error) error {
	for try := 1; ; try++ {
		err := op(ctx)
		again := t.repair(ctx, err)
		if !again || try == attempts {
			err = t.explain(err)
			t.note(err)
			return err
		}
	}
}

// probeTime is how long a device that is known to be wedged has to answer before its
// next request is refused.
const probeTime = 500 * time.Millisecond

// answers asks a device that is known to be wedged whether it answers again. Without
// the question, each request would wait for its whole time. A request that came before
// the last question ended shares its outcome.
func (t *TPM) answers(ctx context.Context, came time.Time) error {
	if t.state() != keys.StateWedged {
		return nil
	}
	if came.Before(t.probed) {
		return t.explain(context.DeadlineExceeded)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	defer func() { t.probed = time.Now() }()
	return t.attempt(ctx, func(ctx context.Context) error {
		l, err := t.sharedLink(ctx)
		if err == nil {
			_, err = properties(ctx, l, tpm2.TPMPTPermanent, tpm2.TPMPTPermanent)
		}
		return err
	})
}

// acquire waits until the caller owns the device.
func (t *TPM) acquire(ctx context.Context) error {
	select {
	case t.owner <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if t.isClosed() {
		<-t.owner
		return &fault.Error{Kind: fault.DeviceAbsent, Message: "the TPM backend is closed"}
	}
	return nil
}

// release flushes the sessions that ended meanwhile and lets the next owner in.
func (t *TPM) release() {
	t.sweep()
	<-t.owner
}

// repair corrects our records of the device's state where err contradicts them, and
// reports whether the operation may be tried again.
func (t *TPM) repair(ctx context.Context, err error) bool {
	if _, final := fault.AsError(err); final || err == nil || ctx.Err() != nil {
		return false
	}
	switch {
	case gone(err):
		return true // the link is marked lost: the next use opens another
	case t.ours && errors.Is(err, tpm2.TPMRCInitialize):
		t.forgetAll()
		return t.startup(ctx) == nil
	case vanished(err):
		t.forgetAll()
		return true
	}
	return false
}

// startup starts a software TPM after a reset, as firmware does for a chip.
func (t *TPM) startup(ctx context.Context) error {
	l, err := t.sharedLink(ctx)
	if err != nil {
		return err
	}
	_, err = tpm2.Startup{StartupType: tpm2.TPMSUClear}.Execute(l.on(ctx))
	if errors.Is(err, tpm2.TPMRCInitialize) {
		return nil // another caller was faster
	}
	return err
}

// sharedLink returns the link that holds no key of its own, opening it when
// needed and cleaning up after a lost reply.
func (t *TPM) sharedLink(ctx context.Context) (*link, error) {
	if t.shared == nil || t.shared.lost {
		t.dirty = t.dirty || t.shared != nil
		t.shared.drop() // first, for swtpm serves one connection at a time
		l, err := t.open(ctx)
		if err != nil {
			return nil, err
		}
		t.shared = l
	}
	if t.dirty {
		if err := t.recover(ctx); err != nil {
			return nil, err
		}
	}
	return t.shared, nil
}

// open opens another link.
func (t *TPM) open(ctx context.Context) (*link, error) {
	conn, err := t.dial(ctx)
	if err != nil {
		return nil, &dialError{err}
	}
	return &link{conn: conn}, nil
}

// isClosed reports whether Close was called.
func (t *TPM) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}
