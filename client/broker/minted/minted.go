// Package minted keeps the credentials that the broker has obtained from API
// servers: in memory alone, bounded, one for each caller, profile and mode, made
// once for all who ask at the same time, and refreshed before they end.
//
// Start at [Mint.Credential]. There is no way to put a credential in.
//
// A credential has a moment after which it is not handed out, its
// ExpirationTimestamp: the true end less a margin of a tenth of the lifetime, at
// least 30 s and at most 60 s. A little before that moment (a hundredth of the
// lifetime, at least 10 s and at most 5 minutes) a new one is made in the
// background, if anybody was given the old one since it was made. So who goes on
// asking never waits, and after the last who asks at most one credential is made
// that nobody uses.
//
// Whoever may use a profile gets the credential itself; what they do with it, or
// who copies it from them, ends with its lifetime only.
package minted

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"holdfast/client"
	"holdfast/client/broker/ticket"
	"holdfast/client/broker/upstream"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
	"holdfast/internal/metrics"
)

// Options is what a Mint needs.
type Options struct {
	Agent   *client.Client
	Pools   *upstream.Pools
	Metrics *metrics.Registry // nil counts for nobody
	Log     *slog.Logger      // nil is silent
}

// The bounds of a Mint.
const (
	perUID = 64   // credentials of one uid
	total  = 1024 // in all
	// mintTime bounds one mint, whoever still waits for it: a certificate request
	// that a person approves takes its time, and the next who ask join it.
	mintTime = 5 * time.Minute
)

// A Mint obtains and keeps credentials. It is safe for concurrent use.
type Mint struct {
	source  source
	log     *slog.Logger
	counts  counts
	ctx     context.Context // of everything under way
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	entries map[identity]*entry
}

// New returns a mint without credentials. Close it.
func New(o Options) *Mint {
	return newMint(&cluster{agent: o.Agent, pools: o.Pools}, o)
}

func newMint(s source, o Options) *Mint {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = metrics.New()
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Mint{source: s, log: o.Log, counts: newCounts(o.Metrics), ctx: ctx, cancel: cancel, entries: map[identity]*entry{}}
}

// Request asks for a credential. The caller of Credential has asked the policy.
type Request struct {
	Holder       ticket.Process      // who will use it: the plugin's parent
	Profile      *profile.Profile    //
	Mode         string              // brokerwire.ModeCertificate or brokerwire.ModeToken
	Cluster      *brokerwire.Cluster // what the client says of its cluster; has to be the profile's
	Unauthorized bool                // the client says that the cluster refused the last one
}

// Credential returns a credential that is valid now, the same one until its
// renewal is due or the cluster has been seen to refuse it.
//
// A process that asks again for what it was given may have seen it refused; so may
// one that says so. Then the cluster is asked, with the credential itself and at
// most once in 5 s, whom it takes it for, and only its 401 makes a new one.
//
// The error is that of ctx or a [*fault.Error]: denied when the request's cluster is
// not the profile's or the profile does not have the mode, unsupported when nobody
// would issue the credential, else what failed. While a mint goes on failing, a
// caller between two tries gets the last failure at once, and RetryAfter says when
// the next try is due. Where the cluster or the agent only cannot be reached, as
// when it is being restarted, the caller waits for further tries, which all callers
// share, for 5 s in all.
func (m *Mint) Credential(ctx context.Context, r Request) (brokerwire.Credential, error) {
	if err := admit(r); err != nil {
		return brokerwire.Credential{}, err
	}
	begun := time.Now()
	for first := true; ; first = false {
		got, wait, err := m.next(r, begun, first)
		if err == nil && wait == nil {
			return got, nil
		}
		if wait != nil {
			select {
			case <-wait.done:
				err = wait.err
			case <-ctx.Done():
				return brokerwire.Credential{}, ctx.Err()
			}
		}
		if err != nil && !outlast(ctx, err, begun) {
			return brokerwire.Credential{}, err
		}
	}
}

// absence is how long a caller waits for a cluster or an agent that cannot be
// reached. An API server that is being restarted is back within it.
const absence = 5 * time.Second

// outlast waits for the next try after a failure that may pass by itself, if that
// is soon enough, and reports whether it did.
func outlast(ctx context.Context, err error, begun time.Time) bool {
	failed, ok := fault.AsError(err)
	if !ok || !transient(failed.Err) || time.Since(begun)+failed.RetryAfter > absence {
		return false
	}
	select {
	case <-time.After(failed.RetryAfter):
		return true
	case <-ctx.Done():
		return false
	}
}

// Forget forgets the credentials of a profile (of all when it is empty), of one
// uid or, when uid is nil, of all. What is being minted for them is given up.
func (m *Mint) Forget(profile string, uid *uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, e := range m.entries {
		if (profile == "" || id.profile == profile) && (uid == nil || id.uid == *uid) {
			m.remove(e)
		}
	}
}

// Count returns how many credentials of a profile are in memory.
func (m *Mint) Count(profile string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for id, e := range m.entries {
		if id.profile == profile && e.held != nil {
			n++
		}
	}
	return n
}

// Close forgets everything and stops the timers. Calls fail from then on.
func (m *Mint) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.Forget("", nil)
	m.running.Wait()
}

var errClosed = &fault.Error{Kind: fault.Internal, Message: "the broker is ending", Hint: "try again"}
