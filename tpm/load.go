package tpm

import (
	"bytes"
	"context"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// maxLoaded bounds the descriptors that are open for loaded keys behind a
// resource manager. Without one the device reports when its slots are full.
const maxLoaded = 32

// An entry is a key that is in the device and can be used by its handle.
type entry struct {
	key       *key
	handle    tpm2.TPMHandle
	transient bool   // it takes a slot and can be evicted from it
	own       *link  // behind a resource manager: the key's own descriptor
	used      uint64 // the clock when it was last used
}

// Check loads the key, or asks the device for the name of the loaded one. All
// that Create verified is verified by each load: see parseMaterial.
func (t *TPM) Check(ctx context.Context, m keys.Material) error {
	return t.run(ctx, requestTimeout, func(ctx context.Context) error {
		e, err := t.find(ctx, m)
		if err != nil {
			return err
		}
		l, err := t.linkOf(ctx, e)
		if err != nil {
			return err
		}
		name, err := nameAt(ctx, l, e.handle)
		if err == nil && !bytes.Equal(name, e.key.name) {
			t.unload(ctx, e.key.id)
			err = &fault.Error{Kind: fault.KeyMismatch, Message: "the TPM holds another key in this one's place"}
		}
		return err
	})
}

// find returns the key's entry, loading the key when it has none.
func (t *TPM) find(ctx context.Context, m keys.Material) (*entry, error) {
	t.clock++
	if !t.managed {
		if _, err := t.sharedLink(ctx); err != nil { // recovery may forget the entry
			return nil, err
		}
	}
	if e := t.loaded[string(m.Device)]; e != nil {
		if e.own == nil || !e.own.lost {
			e.used = t.clock
			return e, e.key.matches(m)
		}
		t.forget(e.key.id)
	}
	k, err := parseMaterial(m)
	if err != nil {
		return nil, err
	}
	return t.load(ctx, k)
}

// linkOf returns the link that an entry's handle is valid on.
func (t *TPM) linkOf(ctx context.Context, e *entry) (*link, error) {
	if e.own != nil {
		return e.own, nil
	}
	return t.sharedLink(ctx)
}

// load brings a key into the device: by its persistent handle when that holds
// it, else as a transient object.
func (t *TPM) load(ctx context.Context, k *key) (*entry, error) {
	if k.persistent != 0 {
		e, err := t.attach(ctx, k)
		if err != nil {
			return nil, err
		}
		if e != nil {
			t.enrol(e)
			return e, nil
		}
	}
	l, own, err := t.linkFor(ctx, true)
	if err != nil {
		return nil, err
	}
	var e *entry
	err = t.withParent(ctx, l, k.parent, func(p parent) (err error) {
		e, err = t.loadUnder(ctx, l, p, k)
		return err
	})
	if err != nil {
		own.drop()
		return nil, err
	}
	e.own = own
	if k.persistent != 0 {
		t.persistAgain(ctx, l, e)
	}
	t.enrol(e)
	return e, nil
}

// linkFor returns a link for a key, one of its own when the key is to be alone:
// the resource manager reloads everything on a descriptor around each command.
func (t *TPM) linkFor(ctx context.Context, alone bool) (l, own *link, err error) {
	if t.managed && alone {
		own, err = t.open(ctx)
		return own, own, err
	}
	l, err = t.sharedLink(ctx)
	return l, nil, err
}

// loadUnder loads a transient key under its parent.
func (t *TPM) loadUnder(ctx context.Context, l *link, p parent, k *key) (*entry, error) {
	e := &entry{key: k, transient: true}
	err := t.withRoom(ctx, func() error {
		reply, err := tpm2.Load{ParentHandle: p.auth(), InPrivate: k.file.Privkey, InPublic: k.file.Pubkey}.Execute(l.on(ctx))
		if err != nil {
			return loadRefused(step("TPM2_Load", l, err))
		}
		e.handle = reply.ObjectHandle
		t.hold(e.handle)
		if !bytes.Equal(reply.Name.Buffer, k.name) {
			t.flush(ctx, l, e.handle)
			return &fault.Error{Kind: fault.KeyMismatch, Message: "the TPM loaded another key than the record's"}
		}
		return nil
	})
	return e, err
}

// hintLost is the next step for a key that its TPM refuses.
const hintLost = "the record is damaged or belongs to another TPM: restore it, or make a new key and enrol it again"

// loadRefused turns a refusal of the key itself into key-lost.
func loadRefused(err error) error {
	if !aboutParameter(err) || vanished(err) {
		return err
	}
	return &fault.Error{Kind: fault.KeyLost, Message: "the TPM no longer takes this key", Hint: hintLost, Err: err}
}

// enrol adds a loaded key to the table, making room among the descriptors.
func (t *TPM) enrol(e *entry) {
	own := 0
	for _, other := range t.loaded {
		if other.own != nil {
			own++
		}
	}
	if e.own != nil && own >= maxLoaded {
		if id := t.oldest(func(e *entry) bool { return e.own != nil }); id != "" {
			t.forget(id)
		}
	}
	e.used = t.clock
	t.loaded[e.key.id] = e
}

// oldest returns the id of the entry that was used least recently, one without
// a PIN session when there is any.
func (t *TPM) oldest(among func(*entry) bool) string {
	var best *entry
	sessions := t.sessions()
	kept := func(e *entry) bool { return sessions[e.key.id] != nil }
	for _, e := range t.loaded {
		if !among(e) {
			continue
		}
		if best == nil || kept(best) && !kept(e) || kept(best) == kept(e) && e.used < best.used {
			best = e
		}
	}
	if best == nil {
		return ""
	}
	return best.key.id
}

// forget drops an entry without a command, closing the descriptor of its own,
// which ends the session on it too.
func (t *TPM) forget(id string) {
	e := t.loaded[id]
	if e == nil {
		return
	}
	delete(t.loaded, id)
	if e.transient {
		delete(t.held, e.handle)
	}
	if e.own != nil {
		t.endSession(id)
		e.own.drop()
	}
}

// withRoom calls call, and calls it again as long as the device is full and a
// key of ours, or a leftover of a lost reply, can make room.
func (t *TPM) withRoom(ctx context.Context, call func() error) error {
	for cleared := false; ; {
		err := call()
		rc := codeOf(err)
		if t.managed || !full(rc) {
			return err
		}
		objects := rc != tpm2.TPMRCSessionMemory && rc != tpm2.TPMRCSessionHandles
		if objects && t.evictOldest(ctx) || !objects && t.parkOldest(ctx) {
			continue
		}
		if cleared || t.recover(ctx) != nil {
			return err
		}
		cleared = true
	}
}

// evictOldest flushes the least recently used of our transient keys.
func (t *TPM) evictOldest(ctx context.Context) bool {
	id := t.oldest(func(e *entry) bool { return e.transient })
	if id == "" || t.shared == nil || t.shared.lost {
		return false
	}
	h := t.loaded[id].handle
	t.forget(id)
	t.flush(ctx, t.shared, h)
	return true
}
