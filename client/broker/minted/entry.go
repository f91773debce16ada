package minted

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"holdfast/client/broker/ticket"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
)

// identity is the key of a credential. A changed profile has another identity.
type identity struct {
	uid     uint32
	unit    string
	profile string
	content [sha256.Size]byte
	mode    string
}

func identify(r Request) identity {
	content, _ := json.Marshal(r.Profile) // plain values, which marshal
	return identity{r.Holder.UID, r.Holder.Unit, r.Profile.Name, sha256.Sum256(content), r.Mode}
}

// entry is the state of one identity. The Mint's lock guards its members.
type entry struct {
	id      identity
	profile *profile.Profile
	holder  ticket.Process // of the last caller
	used    time.Time
	timer   *time.Timer // of the next thing to do; see tick

	held    *held   // the credential that is handed out; may be nil
	minting *flight // the mint in progress; may be nil

	failures int // in a row
	retry    time.Time
	failure  *fault.Error
	refused  [sha256.Size]byte // fingerprint of the credential that the cluster refused last
	refusals int               // since it accepted one
}

// held is a credential that is handed out.
type held struct {
	*credential
	made, renew, stop time.Time
	given             map[process]struct{} // the processes that have it
	wanted            bool                 // given to a caller since it was made

	probed  time.Time
	probing *flight
}

// process identifies a process that asks again.
type process struct {
	pid   int32
	start uint64
}

// maxGiven bounds how many processes are known to have a credential; a further process
// that asks again causes no probe.
const maxGiven = 4096

// probeEvery is how often a cluster is asked about one credential at most.
const probeEvery = 5 * time.Second

// flight is a mint or probe in progress that any number of callers wait for.
type flight struct {
	done   chan struct{}
	err    error // set before done is closed
	cancel func()
}

// next returns the credential for r, or a flight to wait for before the next call, or
// an error. First is false when the caller has waited already.
func (m *Mint) next(r Request, begun time.Time, first bool) (brokerwire.Credential, *flight, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, err := m.entry(r)
	if err != nil {
		return brokerwire.Credential{}, nil, err
	}
	now := time.Now().Round(0) // wall time: it advances while the machine sleeps
	e.used, e.holder, e.profile = now, r.Holder, r.Profile
	if e.held != nil && !now.Before(e.held.stop) {
		e.held = nil
	}
	if e.held != nil {
		if probe := m.suspect(e, r, begun, now); probe != nil {
			return brokerwire.Credential{}, probe, nil
		}
		return m.give(e, r, now), nil, nil
	}
	switch {
	case e.minting == nil && now.Before(e.retry):
		return brokerwire.Credential{}, nil, until(e.failure, now, e.retry)
	case e.minting == nil:
		m.start(e)
	case first:
		m.counts.shared.Add(1, r.Mode)
	}
	return brokerwire.Credential{}, e.minting, nil
}

// give hands the credential out, and has the next one made when it is time.
func (m *Mint) give(e *entry, r Request, now time.Time) brokerwire.Credential {
	h := e.held
	h.wanted = true
	if who := (process{r.Holder.PID, r.Holder.Start}); len(h.given) < maxGiven {
		h.given[who] = struct{}{}
	}
	if !now.Before(h.renew) && e.minting == nil && !now.Before(e.retry) {
		m.start(e)
	}
	m.counts.ttl.Observe(h.stop.Sub(now).Seconds(), r.Mode)
	return h.wire
}

// suspect returns a probe of the credential when r shows that it may have been refused.
// Only a credential from before the call can have been.
func (m *Mint) suspect(e *entry, r Request, begun, now time.Time) *flight {
	h := e.held
	_, again := h.given[process{r.Holder.PID, r.Holder.Start}]
	switch {
	case !again && !r.Unauthorized, !h.made.Before(begun):
		return nil
	case h.probing == nil && now.Sub(h.probed) >= probeEvery:
		m.probe(e, h)
	}
	return h.probing
}

// The backoff after failures doubles, and is the same for all callers.
const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
)

// fail notes a failure. The backoff varies, so that brokers that failed together do
// not try again together.
func (e *entry) fail(err *fault.Error, now time.Time) {
	backoff := min(minBackoff<<min(e.failures, 10), maxBackoff)
	backoff -= rand.N(backoff / 5)
	backoff = min(max(backoff, err.RetryAfter), maxBackoff)
	e.failures++
	e.failure, e.retry = err, now.Add(backoff)
}

// forgetFailureAfter is how long a failure or a refusal is remembered after its backoff.
const forgetFailureAfter = time.Minute

// schedule sets the timer for the next tick. The lock is held.
func (m *Mint) schedule(e *entry, now time.Time) {
	at := e.retry.Add(forgetFailureAfter)
	if h := e.held; h != nil {
		at = h.stop
		if due := later(h.renew, e.retry); h.wanted && e.minting == nil && due.Before(at) && now.Before(due) {
			at = due
		} else if now.Before(h.renew) {
			at = h.renew
		}
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	e.timer = time.AfterFunc(at.Sub(now), func() { m.tick(e) })
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// tick refreshes a credential that is in use, and removes what has ended.
func (m *Mint) tick(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[e.id] != e {
		return
	}
	now := time.Now().Round(0)
	if h := e.held; h != nil && !now.Before(h.stop) {
		e.held = nil
		m.recount(e.id.profile)
	}
	h := e.held
	switch {
	case h != nil && h.wanted && !now.Before(h.renew) && !now.Before(e.retry) && e.minting == nil:
		m.start(e)
	case h == nil && e.minting == nil && !now.Before(e.retry.Add(forgetFailureAfter)):
		m.remove(e)
		return
	case h == nil && e.minting != nil:
		return // its end will schedule
	}
	m.schedule(e, now)
}

var errRefusedAgain = errors.New("the cluster refuses what it issues")
