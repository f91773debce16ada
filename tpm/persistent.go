package tpm

import (
	"bytes"
	"context"
	"errors"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// Persistent keys take the first free handle of this range. It lies within the
// owner's (TCG Registry of Reserved TPM 2.0 Handles, section 2.3.1), above the
// handles that vendors and provisioning use.
const (
	firstPersistent tpm2.TPMHandle = 0x81008000
	lastPersistent  tpm2.TPMHandle = 0x817fffff
)

// A place is a persistent handle and the name of the key that belongs there.
type place struct {
	handle tpm2.TPMHandle
	name   []byte
}

// Persist puts a new key of a persistent template at its handle, and does nothing for
// other keys. The handle in the key's record is never lost: after a lost reply the next
// use finds the key there, or Delete removes it.
func (t *TPM) Persist(ctx context.Context, m keys.Material) error {
	return t.run(ctx, requestTimeout, func(ctx context.Context) error {
		e, err := t.find(ctx, m)
		if err != nil || !e.transient || e.key.persistent == 0 {
			return err
		}
		l, err := t.linkOf(ctx, e)
		if err != nil {
			return err
		}
		return persistRefused(t.persist(ctx, l, e))
	})
}

// persist puts a loaded key at its handle, unless a command whose reply was lost
// has done so already.
func (t *TPM) persist(ctx context.Context, l *link, e *entry) error {
	err := t.evictControl(ctx, l, e.handle, e.key.persistent)
	if errors.Is(err, tpm2.TPMRCNVDefined) {
		found, lookErr := t.holds(ctx, l, place{e.key.persistent, e.key.name})
		if found || lookErr != nil {
			err = lookErr
		}
	}
	if err != nil {
		return err
	}
	t.becomePersistent(ctx, l, e)
	return nil
}

// persistRefused is the error for a key that cannot be persistent.
func persistRefused(err error) error {
	switch {
	case wrongAuth(err):
		return &fault.Error{Kind: fault.Unsupported, Message: "the TPM's owner hierarchy needs an authorisation for a persistent key", Hint: hintOwner, Err: err}
	case errors.Is(err, tpm2.TPMRCNVDefined):
		return &fault.Error{Kind: fault.Busy, Message: "another program has just taken the key's persistent handle", Hint: "try again", Err: err}
	case errors.Is(err, tpm2.TPMRCNVSpace):
		return &fault.Error{Kind: fault.Unsupported, Message: "the TPM has no room for another persistent key", Hint: "make the key without --persistent", Err: err}
	}
	return err
}

// becomePersistent turns a transient entry into that of its persistent copy.
func (t *TPM) becomePersistent(ctx context.Context, l *link, e *entry) {
	t.flush(ctx, l, e.handle)
	e.handle, e.transient = e.key.persistent, false
	delete(t.reserved, e.handle)
	if e.own != nil && !e.key.pin {
		e.own.drop()
		e.own = nil
	}
}

// reserve returns the first handle of our range that holds nothing and is not
// promised to another new key.
func (t *TPM) reserve(ctx context.Context, l *link) (tpm2.TPMHandle, error) {
	for free := firstPersistent; free <= lastPersistent; free++ {
		if t.reserved[free] {
			continue
		}
		taken, err := handlesFrom(ctx, l, free, 1)
		if err != nil {
			return 0, err
		}
		if len(taken) == 0 || taken[0] != free {
			t.reserved[free] = true
			return free, nil
		}
	}
	return 0, &fault.Error{Kind: fault.Unsupported, Message: "the TPM has no free persistent handle"}
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

// holds reports whether a persistent handle holds the object of that name.
func (t *TPM) holds(ctx context.Context, l *link, c place) (found bool, err error) {
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

// attach returns an entry for a key at its persistent handle, or nil when the handle is
// empty or holds another object.
func (t *TPM) attach(ctx context.Context, k *key) (*entry, error) {
	l, own, err := t.linkFor(ctx, k.pin)
	if err != nil {
		return nil, err
	}
	found, err := t.holds(ctx, l, place{k.persistent, k.name})
	if err != nil || !found {
		own.drop()
		return nil, err
	}
	return &entry{key: k, handle: k.persistent, own: own}, nil
}

// persistAgain puts a key back at the handle in its record. When the handle is taken or
// the TPM refuses it, the key is used as a transient one.
func (t *TPM) persistAgain(ctx context.Context, l *link, e *entry) {
	_ = t.persist(ctx, l, e)
}

// Delete forgets a loaded key and removes its persistent copy, if it is there
// and is this key. A key without one leaves nothing in the device.
func (t *TPM) Delete(ctx context.Context, m keys.Material) error {
	k, err := parseMaterial(m)
	if err != nil {
		return err
	}
	t.Lock(&m)
	return t.run(ctx, requestTimeout, func(ctx context.Context) error {
		t.unload(ctx, k.id)
		delete(t.proven, k.id)
		if k.persistent == 0 {
			return nil
		}
		delete(t.reserved, k.persistent)
		l, err := t.sharedLink(ctx)
		if err != nil {
			return err
		}
		return t.evict(ctx, l, place{k.persistent, k.name})
	})
}

// evict removes the key from its place, and no other object.
func (t *TPM) evict(ctx context.Context, l *link, c place) error {
	found, err := t.holds(ctx, l, c)
	if err != nil || !found {
		return err
	}
	return persistRefused(t.evictControl(ctx, l, c.handle, c.handle))
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
