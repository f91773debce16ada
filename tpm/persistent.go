package tpm

import (
	"bytes"
	"context"
	"errors"

	"github.com/google/go-tpm/tpm2"

	"holdfast/agent/keys"
)

// Persistent keys take the first free handle of this range. It lies within the
// owner's (TCG Registry of Reserved TPM 2.0 Handles, section 2.3.1), above what
// vendors and provisioning use.
const (
	firstPersistent tpm2.TPMHandle = 0x81008000
	lastPersistent  tpm2.TPMHandle = 0x817fffff
)

// A claim is a persistent handle that may hold an unfinished key of ours: the
// reply that would tell was lost.
type claim struct {
	handle tpm2.TPMHandle
	name   []byte
}

// persistNew gives a new key a persistent handle.
func (t *TPM) persistNew(ctx context.Context, l *link, e *entry) error {
	h, err := freeHandle(ctx, l)
	if err != nil {
		return err
	}
	t.unsure = append(t.unsure, claim{h, e.key.name})
	err = t.evictControl(ctx, l, e.handle, h)
	if err == nil || codeOf(err) != tpm2.TPMRCSuccess {
		t.unsure = t.unsure[:len(t.unsure)-1]
	}
	if err != nil {
		return persistRefused(err)
	}
	e.key.persistent = h
	t.becomePersistent(ctx, l, e)
	return nil
}

// persistRefused says why a key cannot be persistent.
func persistRefused(err error) error {
	switch {
	case wrongAuth(err):
		return &keys.Error{Kind: keys.Unsupported, Message: "the TPM's owner hierarchy wants an authorisation for a persistent key", Hint: hintOwner, Err: err}
	case errors.Is(err, tpm2.TPMRCNVSpace):
		return &keys.Error{Kind: keys.Unsupported, Message: "the TPM has no room for another persistent key", Hint: "make the key without --persistent", Err: err}
	}
	return err
}

// becomePersistent turns a transient entry into that of its persistent copy.
func (t *TPM) becomePersistent(ctx context.Context, l *link, e *entry) {
	t.flush(ctx, l, e.handle)
	e.handle, e.transient = e.key.persistent, false
	if e.own != nil && !e.key.pin {
		e.own.drop()
		e.own = nil
	}
}

// freeHandle returns the first handle of our range that holds nothing.
func freeHandle(ctx context.Context, l *link) (tpm2.TPMHandle, error) {
	free := firstPersistent
	for free <= lastPersistent {
		taken, err := handlesFrom(ctx, l, free, maxHandles)
		if err != nil {
			return 0, err
		}
		if len(taken) == 0 || taken[0] != free {
			return free, nil
		}
		for _, h := range taken {
			if h != free {
				break
			}
			free++
		}
	}
	return 0, &keys.Error{Kind: keys.Unsupported, Message: "the TPM has no free persistent handle"}
}

// evictControl makes the object at from persistent at h, or removes the
// persistent object when both are the same.
func (t *TPM) evictControl(ctx context.Context, l *link, from, h tpm2.TPMHandle) error {
	name, err := nameAt(ctx, l, from)
	if err != nil {
		return err
	}
	return t.asOwner(ctx, l, func(owner tpm2.AuthHandle) error {
		return t.withRoom(ctx, func() error {
			_, err := tpm2.EvictControl{
				Auth:             owner,
				ObjectHandle:     tpm2.NamedHandle{Handle: from, Name: tpm2.TPM2BName{Buffer: name}},
				PersistentHandle: h,
			}.Execute(l.on(ctx))
			return step("TPM2_EvictControl", l, err)
		})
	})
}

// nameAt computes the name of the object at a handle.
func nameAt(ctx context.Context, l *link, h tpm2.TPMHandle) ([]byte, error) {
	area, err := readPublic(ctx, l, h)
	if err != nil {
		return nil, err
	}
	name, err := tpm2.ObjectName(area)
	if err != nil {
		return nil, step("TPM2_ReadPublic", l, err)
	}
	return name.Buffer, nil
}

// holds reports whether a persistent handle holds the object of that name, and
// not nothing or another's.
func (t *TPM) holds(ctx context.Context, l *link, c claim) (found bool, err error) {
	err = t.withRoom(ctx, func() error {
		name, err := nameAt(ctx, l, c.handle)
		found = err == nil && bytes.Equal(name, c.name)
		return err
	})
	if vanished(err) {
		return false, nil
	}
	return found, err
}

// attach returns an entry for a key at its persistent handle, or nil when
// something else or nothing is there.
func (t *TPM) attach(ctx context.Context, k *key) (*entry, error) {
	l, own, err := t.linkFor(ctx, k.pin)
	if err != nil {
		return nil, err
	}
	found, err := t.holds(ctx, l, claim{k.persistent, k.name})
	if err != nil || !found {
		own.drop()
		return nil, err
	}
	return &entry{key: k, handle: k.persistent, own: own}, nil
}

// persistAgain puts a key back where its record says it is. When that place is
// taken or refused the key is used as a transient one.
func (t *TPM) persistAgain(ctx context.Context, l *link, e *entry) {
	if t.evictControl(ctx, l, e.handle, e.key.persistent) == nil {
		t.becomePersistent(ctx, l, e)
	}
}

// Delete forgets a loaded key and removes its persistent copy, if it is there
// and is this key. A key without one leaves nothing in the device.
func (t *TPM) Delete(ctx context.Context, m keys.Material) error {
	k, err := parseMaterial(m)
	if err != nil {
		return err
	}
	t.Lock(&m)
	return t.run(ctx, patience, func(ctx context.Context) error {
		t.unload(ctx, k.id)
		if k.persistent == 0 {
			return nil
		}
		l, err := t.sharedLink(ctx)
		if err != nil {
			return err
		}
		return t.evict(ctx, l, claim{k.persistent, k.name})
	})
}

// evict removes the persistent object of a claim and nothing else.
func (t *TPM) evict(ctx context.Context, l *link, c claim) error {
	found, err := t.holds(ctx, l, c)
	if err != nil || !found {
		return err
	}
	return persistRefused(t.evictControl(ctx, l, c.handle, c.handle))
}

// settleClaims removes what lost replies may have left at persistent handles.
func (t *TPM) settleClaims(ctx context.Context, l *link) error {
	for len(t.unsure) > 0 {
		if err := t.evict(ctx, l, t.unsure[0]); err != nil {
			return err
		}
		t.unsure = t.unsure[1:]
	}
	return nil
}

// unload flushes a key that is loaded and forgets it.
func (t *TPM) unload(ctx context.Context, id string) {
	e := t.loaded[id]
	if e == nil {
		return
	}
	t.forget(id)
	if e.own == nil && e.transient {
		t.flush(ctx, t.shared, e.handle)
	}
}
