// Package minted keeps the credentials that the broker has obtained from API
// servers: in memory alone, bounded, one for each caller, profile and mode, made
// once for all concurrent callers, and refreshed before they end.
//
// Start at [Mint.Credential]. There is no way to put a credential in.
//
// A credential is not handed out after its ExpirationTimestamp: its true end less a
// margin of a tenth of the lifetime, at least 30 s and at most 60 s. A little before
// that (a hundredth of the lifetime, at least 10 s and at most 5 minutes) a new one is
// made in the background, if the old one was given to a caller since it was made. So
// a caller that keeps asking never waits, and after the last call at most one credential
// is made that no caller uses.
//
// A caller that may use a profile gets the credential itself. The broker cannot take
// it back: the caller, and a program that copies it, can use it until it expires.
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

// Options configures a Mint.
type Options struct {
	Agent   *client.Client
	Pools   *upstream.Pools
	Metrics *metrics.Registry // may be nil
	Log     *slog.Logger      // may be nil
}

// The bounds of a Mint.
const (
	perUID = 64   // credentials of one uid
	total  = 1024 // in all
	// mintTimeout bounds one mint, also when no caller waits for it any more: approval
	// of a certificate request may take a while, and later callers join the mint.
	mintTimeout = 5 * time.Minute
)

// A Mint obtains and keeps credentials. It is safe for concurrent use.
type Mint struct {
	source  source
	log     *slog.Logger
	counts  counts
	ctx     context.Context // of all mints and probes
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
	Holder       ticket.Process      // the process that will use it: the plugin's parent
	Profile      *profile.Profile    //
	Mode         string              // brokerwire.ModeCertificate or brokerwire.ModeToken
	Cluster      *brokerwire.Cluster // what the client says of its cluster; has to be the profile's
	Unauthorized bool                // the client says that the cluster refused the last one
}

// Credential returns a credential that is valid now, the same one until its
// renewal is due or the cluster has been seen to refuse it.
//
// A process that asks again for a credential it was given may have seen it refused,
// and so may one that says so. Then the broker asks the cluster, with the credential
// itself and at most once in 5 s, which user it stands for. Only a 401 makes a new one.
//
// The error is that of ctx or a [*fault.Error]: denied when the request's cluster is
// not the profile's or the profile does not have the mode, unsupported when no
// signer would issue the credential, else what failed. While mints fail, a
// caller between two tries gets the last failure at once, and RetryAfter says when
// the next try is due. Where the cluster or the agent cannot be reached, for example
// during a restart, the caller waits for further tries, which all callers share, for
// 5 s in all.
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
		if err != nil && !awaitRetry(ctx, err, begun) {
			return brokerwire.Credential{}, err
		}
	}
}

// transientWait is how long a caller waits for a cluster or an agent that cannot be
// reached. An API server that restarts is back within it.
const transientWait = 5 * time.Second

// awaitRetry waits for the next try after a transient failure, if that is soon enough,
// and reports whether it did.
func awaitRetry(ctx context.Context, err error, begun time.Time) bool {
	failed, ok := fault.AsError(err)
	if !ok || !transient(failed.Err) || time.Since(begun)+failed.RetryAfter > transientWait {
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
// uid or, when uid is nil, of all. Mints in progress for them are canceled.
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
	return m.count(profile)
}

// count is called with the lock held.
func (m *Mint) count(profile string) int {
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
