package tpm

import (
	"context"
	"fmt"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// A PIN is the key's authorisation value. It crosses the bus only inside a
// command that is encrypted to the pinned parent, when the key is made; to
// unlock, it becomes part of the key of a session that is salted to the parent
// and bound to the key (TPM 2.0 Part 1, section 19.6.8). The session then
// authorises the key by itself, and the PIN is not kept.

// needPIN is the error for a key with a PIN and without a live session.
func needPIN() error {
	return &fault.Error{Kind: fault.PINRequired, Message: "the key is locked with a PIN", Next: fault.Next{Do: fault.Unlock}}
}

// Unlock lets Sign use a key with a PIN until the given time. The caller wipes
// pin. Unlock sends nothing when a wrong PIN would come too near the TPM's lockout.
func (t *TPM) Unlock(ctx context.Context, m keys.Material, pin []byte, until time.Time) error {
	if err := keys.CheckPIN(pin); err != nil {
		return err
	}
	if !m.PIN || !time.Now().Before(until) {
		return &fault.Error{Kind: fault.BadRequest, Message: "the key has no PIN, or the time to unlock it for is over"}
	}
	return t.run(ctx, requestTimeout, func(ctx context.Context) error {
		e, err := t.find(ctx, m)
		if err != nil {
			return err
		}
		l, err := t.linkOf(ctx, e)
		if err != nil {
			return err
		}
		tries, err := t.mayTry(ctx, l, e.key)
		if err != nil {
			return err
		}
		s, err := t.provePIN(ctx, l, e, pin, tries)
		if err != nil {
			return err
		}
		t.keepSession(e.key.id, s, until)
		return nil
	})
}

// mayTry reads the dictionary-attack counters and fails when a wrong PIN would leave
// too few tries to other software on this machine, such as disk encryption. Keys that do not count (noDA) may always try.
func (t *TPM) mayTry(ctx context.Context, l *link, k *key) (lockout, error) {
	if k.area.ObjectAttributes.NoDA {
		return lockout{}, nil
	}
	now, err := readLockout(ctx, l)
	if err != nil {
		return now, err
	}
	if now.locked {
		return now, &fault.Error{Kind: fault.DeviceLocked, Message: "the TPM is locked after wrong authorisations", Hint: hintLocked, RetryAfter: now.interval}
	}
	if now.left()-1 < now.reserve() {
		return now, &fault.Error{Kind: fault.PINBlocked,
			Message: fmt.Sprintf("the TPM locks itself after %d more wrong authorisations: none of them is spent on a PIN", now.left()),
			Hint:    fmt.Sprintf("the TPM forgives one every %s", now.interval)}
	}
	return now, nil
}

// provePIN starts a session bound to the key with pin and proves it with a
// signature that is discarded. It repeats nothing: each repetition of a wrong PIN costs
// a try.
func (t *TPM) provePIN(ctx context.Context, l *link, e *entry, pin []byte, now lockout) (*session, error) {
	var s *session
	err := t.withParent(ctx, l, e.key.parent, func(p parent) (err error) {
		s, err = t.bindSession(ctx, l, p, e, pin)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := t.testSign(ctx, l, e, e.key.suites[0], s); err != nil {
		s.wipe()
		t.flush(ctx, l, s.handle)
		if wrongAuth(err) {
			return nil, wrongPIN(now)
		}
		return nil, t.explain(err)
	}
	return s, nil
}

// wrongPIN is the error for a wrong PIN, with the tries left by the counters from
// before it.
func wrongPIN(before lockout) error {
	e := &fault.Error{Kind: fault.PINRequired, Message: "wrong PIN", Next: fault.Next{Do: fault.Unlock}}
	if before.max > 0 {
		e.Message = fmt.Sprintf("wrong PIN; %d more are tried before the TPM's lockout comes too near", max(before.left()-1-before.reserve(), 0))
	}
	return e
}

// bindSession starts a session that authorises e's key with pin.
func (t *TPM) bindSession(ctx context.Context, l *link, p parent, e *entry, pin []byte) (*session, error) {
	return t.startSession(ctx, l, sessionRequest{salt: &p, bind: e.handle, bindAuth: pin})
}

// keepSession makes s the key's session and arms the timer that ends it.
func (t *TPM) keepSession(id string, s *session, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retire(id)
	s.until, s.used = until, t.clock
	s.timer = time.AfterFunc(time.Until(until), func() { t.lockOne(id, s) })
	t.unlocked[id] = s
}

// Lock ends the session of one key, or of all. The session key is wiped at
// once, the device's slot when the device is next free.
func (t *TPM) Lock(m *keys.Material) {
	for id, s := range t.sessions() {
		if m == nil || id == string(m.Device) {
			t.lockOne(id, s)
		}
	}
}

// lockOne retires s, unless another session has replaced it, and flushes it if the
// device has no owner; otherwise the owner flushes it on release.
func (t *TPM) lockOne(id string, s *session) {
	t.mu.Lock()
	if t.unlocked[id] == s {
		t.retire(id)
	}
	t.mu.Unlock()
	select {
	case t.owner <- struct{}{}:
		t.release()
	default:
	}
}

// retire wipes a key's session and leaves its handle to sweep. t.mu is held.
func (t *TPM) retire(id string) {
	if s := t.unlocked[id]; s != nil {
		delete(t.unlocked, id)
		s.timer.Stop()
		s.wipe()
		t.expired = append(t.expired, s)
	}
}

// sessionOf returns a key's live session, or nil.
func (t *TPM) sessionOf(id string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unlocked[id]
}

// sessions returns the live sessions by key.
func (t *TPM) sessions() map[string]*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	copied := make(map[string]*session, len(t.unlocked))
	for id, s := range t.unlocked {
		copied[id] = s
	}
	return copied
}

// endSession retires a key's session; the owner's release flushes it.
func (t *TPM) endSession(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retire(id)
}

// sweep flushes retired sessions, later if the device does not answer now. The
// caller owns the device.
func (t *TPM) sweep() {
	if now := t.state(); now == keys.StateWedged || now == keys.StateAbsent {
		return
	}
	t.mu.Lock()
	list := t.expired
	t.expired = nil
	t.mu.Unlock()
	for _, s := range list {
		l := s.link
		if !t.managed {
			l = t.shared
		}
		if l == nil || l.closed || l.lost || !t.managed && !t.held[s.handle] {
			delete(t.held, s.handle)
			continue
		}
		t.flush(context.Background(), l, s.handle)
	}
}

// A lockout is the state of the dictionary-attack protection (TPM 2.0 Part 1,
// section 19.8).
type lockout struct {
	locked   bool
	failed   int           // failed tries that are not forgiven yet
	max      int           // failed tries that lock the device
	interval time.Duration // in which one failed try is forgiven
}

// left returns how many more failed tries lock the device.
func (o lockout) left() int { return max(o.max-o.failed, 0) }

// reserve returns how many tries are kept for other software: three, or one where the
// limit is as low as a software TPM's.
func (o lockout) reserve() int {
	if o.max < 5 {
		return 1
	}
	return 3
}

// readLockout asks for the present state.
func readLockout(ctx context.Context, l *link) (lockout, error) {
	p, err := properties(ctx, l, tpm2.TPMPTPermanent, tpm2.TPMPTLockoutRecovery)
	if err != nil {
		return lockout{}, err
	}
	return lockoutFrom(p), nil
}

// inLockout is a bit of TPMA_PERMANENT (TPM 2.0 Part 2, section 8.6).
const inLockout = 1 << 9

// lockoutFrom reads the counters. A device that reports a limit of zero counts
// as locked: no try is safe there.
func lockoutFrom(p map[tpm2.TPMPT]uint32) lockout {
	o := lockout{
		failed:   int(p[tpm2.TPMPTLockoutCounter]),
		max:      int(p[tpm2.TPMPTMaxAuthFail]),
		interval: time.Duration(p[tpm2.TPMPTLockoutInterval]) * time.Second,
	}
	o.locked = p[tpm2.TPMPTPermanent]&inLockout != 0 || o.failed >= o.max
	return o
}
