package minted

import (
	"context"
	"crypto/sha256"
	"time"
)

// start begins to mint for an entry. A caller that leaves does not cancel it: others
// may wait for it. The lock is held.
func (m *Mint) start(e *entry) {
	ctx, cancel := context.WithTimeout(m.ctx, mintTimeout)
	f := &flight{done: make(chan struct{}), cancel: cancel}
	e.minting = f
	holder, prof, mode := e.holder, e.profile, e.id.mode
	m.running.Go(func() {
		defer cancel()
		begun := time.Now()
		c, err := m.source.obtain(ctx, holder, prof, mode)
		if err == nil {
			err = c.check(time.Now())
		}
		m.counts.minted(mode, err, time.Since(begun))
		m.finish(e, f, c, err)
	})
}

// finish ends a mint, for all callers that wait for it.
func (m *Mint) finish(e *entry, f *flight, c *credential, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer close(f.done)
	if m.entries[e.id] != e {
		return // forgotten: callers that wait ask again
	}
	e.minting = nil
	now := time.Now().Round(0)
	if err == nil && c.fingerprint() == e.refused {
		err = errRefusedAgain
	}
	if err != nil {
		known := explain(err, e.profile, e.id.mode)
		e.fail(known, now)
		f.err = until(known, now, e.retry)
		m.log.Warn("credential not obtained", "profile", e.id.profile, "mode", e.id.mode, "uid", e.id.uid, "error", known.Message, "retry", e.retry)
	} else {
		e.failures, e.failure, e.retry = 0, nil, time.Time{}
		e.held = hold(c, now)
		m.recount(e.id.profile)
		m.log.Info("credential obtained", "profile", e.id.profile, "mode", e.id.mode, "uid", e.id.uid, "expires", c.expires)
	}
	m.schedule(e, now)
}

// The margins before a credential's true end, and before it is not handed out.
const (
	minMargin = 30 * time.Second
	maxMargin = 60 * time.Second
	minAhead  = 10 * time.Second
	maxAhead  = 5 * time.Minute
)

// margin is how long before its end a credential is last handed out.
func margin(lifetime time.Duration) time.Duration {
	return min(max(lifetime/10, minMargin), maxMargin)
}

func hold(c *credential, now time.Time) *held {
	stop := c.stop(now)
	ahead := min(max(c.expires.Sub(now)/100, minAhead), maxAhead)
	c.wire.ExpirationTimestamp = stop.UTC()
	return &held{credential: c, made: now, stop: stop, renew: stop.Add(-ahead), given: map[process]struct{}{}}
}

// probe asks the cluster which user the credential stands for. The lock is held.
func (m *Mint) probe(e *entry, h *held) {
	ctx, cancel := context.WithTimeout(m.ctx, probeEvery)
	f := &flight{done: make(chan struct{}), cancel: cancel}
	h.probing, h.probed = f, time.Now().Round(0)
	prof := e.profile
	m.running.Go(func() {
		defer cancel()
		verdict := m.source.probe(ctx, prof, h.credential)
		m.counts.inferences.Add(1, e.id.mode, verdict)
		m.mu.Lock()
		defer m.mu.Unlock()
		defer close(f.done)
		h.probing, h.probed = nil, time.Now().Round(0)
		if m.entries[e.id] == e && e.held == h {
			m.judge(e, verdict)
		}
	})
}

// judge acts on the verdict about the credential that is held. A refused one is
// replaced at once; when the next is refused too, there is a backoff as for a mint
// that fails. The lock is held.
func (m *Mint) judge(e *entry, verdict string) {
	switch verdict {
	case verdictAccepted:
		e.refusals = 0
		return
	case verdictUnknown:
		return
	}
	now := time.Now().Round(0)
	m.log.Warn("credential refused by the cluster", "profile", e.id.profile, "mode", e.id.mode, "uid", e.id.uid)
	e.refused, e.held = e.held.fingerprint(), nil
	e.failures, e.retry = 0, now
	if e.refusals > 0 {
		e.failures = e.refusals - 1
		e.fail(explain(errRefusedAgain, e.profile, e.id.mode), now)
	}
	e.refusals++
	m.recount(e.id.profile)
	m.schedule(e, now)
}

// fingerprint identifies a credential.
func (c *credential) fingerprint() [sha256.Size]byte {
	return sha256.Sum256([]byte(c.wire.Token + c.wire.ClientCertificateData))
}
