package tpm

import (
	"context"
	"time"

	"github.com/google/go-tpm/tpm2"
)

// tidyTime bounds a clean-up that outlives its caller's context.
const tidyTime = 2 * time.Second

// tidying returns a context for cleaning up after ctx, which may have ended.
func tidying(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
}

// hold notes a handle as ours, so that recover leaves it alone.
func (t *TPM) hold(h tpm2.TPMHandle) { t.held[h] = true }

// flush flushes a transient object or session. When that fails, the next use of the
// link cleans up the device.
func (t *TPM) flush(ctx context.Context, l *link, h tpm2.TPMHandle) {
	delete(t.held, h)
	if l == nil || l.lost {
		return
	}
	ctx, cancel := tidying(ctx)
	defer cancel()
	_, err := tpm2.FlushContext{FlushHandle: h}.Execute(l.on(ctx))
	if err != nil && codeOf(err) == tpm2.TPMRCSuccess {
		l.lost = true
	}
}

// recover flushes every transient object and session on a device without a
// resource manager that is not held: leftovers of lost replies or of an agent
// that was killed. It drops held handles that are no longer in the device.
func (t *TPM) recover(ctx context.Context) error {
	if t.managed {
		t.dirty = false // closing the descriptor flushed its handles
		return nil
	}
	found, err := t.listHandles(ctx)
	if err != nil {
		return err
	}
	for h := range found {
		if !t.held[h] {
			t.flush(ctx, t.shared, h)
		}
	}
	t.forgetMissing(found)
	t.dirty = t.shared.lost
	return nil
}

// listHandles asks for all transient objects and loaded sessions.
func (t *TPM) listHandles(ctx context.Context) (map[tpm2.TPMHandle]bool, error) {
	found := map[tpm2.TPMHandle]bool{}
	for _, kind := range []tpm2.TPMHT{tpm2.TPMHTTransient, tpm2.TPMHTHMACSession, tpm2.TPMHTPolicySession} {
		list, err := handlesFrom(ctx, t.shared, tpm2.TPMHandle(kind)<<24, maxHandles)
		if err != nil {
			return nil, err
		}
		for _, h := range list {
			found[h] = true
		}
	}
	return found, nil
}

// maxHandles bounds the handles in one reply, and is more than a device without a
// resource manager has.
const maxHandles = 254

// handlesFrom lists at most count handles of first's kind from first upwards.
func handlesFrom(ctx context.Context, l *link, first tpm2.TPMHandle, count uint32) ([]tpm2.TPMHandle, error) {
	reply, err := tpm2.GetCapability{
		Capability: tpm2.TPMCapHandles, Property: uint32(first), PropertyCount: count,
	}.Execute(l.on(ctx))
	if err != nil {
		return nil, step("TPM2_GetCapability", l, err)
	}
	list, err := reply.CapabilityData.Data.Handles()
	if err != nil {
		return nil, step("TPM2_GetCapability", l, err)
	}
	return list.Handle, nil
}

// forgetMissing drops entries and sessions whose handles are not found.
func (t *TPM) forgetMissing(found map[tpm2.TPMHandle]bool) {
	for id, e := range t.loaded {
		if e.transient && !found[e.handle] {
			t.forget(id)
		}
	}
	for id, s := range t.sessions() {
		if !found[s.handle] {
			t.endSession(id)
		}
	}
	for h := range t.held {
		if !found[h] {
			delete(t.held, h)
		}
	}
}

// forgetAll drops all records of the device's content, without a command: the device
// was reset, cleared or restarted.
func (t *TPM) forgetAll() {
	for id := range t.loaded {
		t.forget(id)
	}
	for id := range t.sessions() {
		t.endSession(id)
	}
	clear(t.held)
}
