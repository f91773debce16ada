// Package broker is the network half of holdfast: the varlink service
// io.holdfast.Broker, which gives stock Kubernetes clients the credentials that
// the agent's keys stand behind, and the loopback proxy that signs in for them.
//
// Start at [New], [Broker.Start] and [Broker.Serve]; the parts are in the packages
// below: tickets, upstream connections, minted credentials, the proxy, and who
// the proxy is on the loopback interface. The broker is a client of the agent
// like any other, and holds no key of anybody's. There is no way to put a
// credential in.
//
// It does not protect a user from programs of the same user: those can ask for a
// credential too. A broker that is taken over can use the keys that the agent
// lets its uid use, for as long as that lasts.
package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/client"
	"holdfast/client/broker/loopback"
	"holdfast/client/broker/minted"
	"holdfast/client/broker/proxy"
	"holdfast/client/broker/ticket"
	"holdfast/client/broker/upstream"
	"holdfast/internal/brokerwire"
	"holdfast/internal/door"
	"holdfast/internal/metrics"
	"holdfast/internal/policy"
	"holdfast/internal/varlink"
)

// Options is what a broker needs.
type Options struct {
	Version    string
	System     bool                            // the machine's broker, rather than a user's
	Agent      *client.Client                  //
	State      string                          // a directory of this uid alone
	Profiles   string                          // the directory of the profiles
	Listen     string                          // where the proxy listens, 127.0.0.1:PORT; empty for where it did last, else for any port
	Passed     net.Listener                    // the proxy's listener from systemd; nil when there is none
	Keyring    loopback.Keyring                // where the proxy's key is kept when the agent's device cannot seal it; nil where there is none
	KeyFile    bool                            // keep the proxy's key in a file even where it could be sealed, or be in the keyring
	LoadPolicy func() (*policy.Policy, error)  // at the start and at each reload
	Limits     Limits                          //
	Log        *slog.Logger                    // slog's default when nil
	Clocks     func() (boot, up time.Duration) // CLOCK_BOOTTIME and CLOCK_MONOTONIC; the system's when nil
}

// Limits bounds what callers can take. Zero values mean the defaults.
type Limits struct {
	ConnectionsPerUID int           // 320
	Connections       int           // of all uids; 4096
	Request           time.Duration // how long one call may take; 60 s
}

// server is what the broker wants of a [*proxy.Proxy].
type server interface {
	Serve(l net.Listener, profile string) error
	Shutdown(ctx context.Context) error
}

// mint is what the broker wants of a [*minted.Mint].
type mint interface {
	Credential(ctx context.Context, r minted.Request) (brokerwire.Credential, error)
	Forget(profile string, uid *uint32)
	Count(profile string) int
	Close()
}

// Broker is the service. Its methods are safe for concurrent use.
type Broker struct {
	Options
	service  *varlink.Service
	uid      uint32 // the broker's own
	started  time.Time
	registry *metrics.Registry
	counts   counts
	policy   atomic.Pointer[policy.Policy]
	door     *door.Door
	shelf    *shelf
	holders  holders
	tickets  *ticket.Table
	pools    *upstream.Pools
	touches  touches
	mint     mint
	front    *front
	keys     watched
	ready    readiness
	running  sync.WaitGroup  // what Start started
	calls    context.Context // ends when the calls that are left have to
	cutCalls context.CancelFunc

	mu     sync.Mutex
	reload error // why the last reload failed; nil when it did not
}

// New makes a broker and reads its policy and profiles. It asks the agent nothing
// and serves nobody yet.
func New(o Options) (*Broker, error) {
	o.setDefaults()
	loaded, err := o.LoadPolicy()
	if err != nil {
		return nil, err
	}
	b := &Broker{
		Options: o, uid: uint32(os.Getuid()), started: time.Now().UTC(),
		registry: metrics.New(),
		tickets:  ticket.New(ticket.Options{}),
	}
	b.calls, b.cutCalls = context.WithCancel(context.Background())
	b.counts = newCounts(b.registry)
	b.policy.Store(loaded)
	b.shelf = newShelf(o.Profiles, b.profileChanged)
	b.pools = upstream.New(upstream.Options{Agent: o.Agent, Metrics: b.registry, Log: o.Log, Alone: b.alone})
	b.mint = minted.New(minted.Options{Agent: o.Agent, Pools: b.pools, Metrics: b.registry, Log: o.Log})
	b.front = newFront(o, b.serveWith)
	b.door = b.newDoor()
	b.service = b.newService()
	return b, nil
}

func (o *Options) setDefaults() {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Clocks == nil {
		o.Clocks = systemClocks
	}
	if o.Limits.Request <= 0 {
		o.Limits.Request = time.Minute
	}
}

// serveWith makes the proxy for a certificate.
func (b *Broker) serveWith(certificate tls.Certificate) server {
	return proxy.New(proxy.Options{
		Certificate: certificate, Tickets: b.tickets, Pools: b.pools,
		Profile: b.shelf.get, Allowed: b.mayProxy, Metrics: b.registry, Log: b.Log,
	})
}

// Start opens the proxy's listeners as far as that is possible now, and begins to
// follow the agent and the clocks until ctx ends. What is not possible now, since
// the agent cannot be reached or another process has the port, is tried again
// when somebody wants it, and when the agent is there.
func (b *Broker) Start(ctx context.Context) {
	now, cancel := context.WithTimeout(ctx, hung)
	defer cancel()
	b.openAll(now)
	b.running.Go(func() { b.followAgent(ctx) })
	b.running.Go(func() { b.followClocks(ctx, clockPulse) })
}

// openAll opens the shared listener and those of the profiles that have their own.
func (b *Broker) openAll(ctx context.Context) {
	profiles, _, _ := b.shelf.list()
	b.front.close(profiles)
	if err := b.front.open(ctx, nil); err != nil {
		b.Log.Warn("loopback", "error", err)
	}
	for _, p := range profiles {
		if p.Proxy.Port == 0 {
			continue
		}
		if err := b.front.open(ctx, p); err != nil {
			b.Log.Warn("loopback", "profile", p.Name, "error", err)
		}
	}
}

// Reload reads the policy and the profiles again. A policy that cannot be read
// leaves the old one in force, and so does a profile.
func (b *Broker) Reload(ctx context.Context) error {
	loaded, err := b.LoadPolicy()
	b.mu.Lock()
	b.reload = err
	b.mu.Unlock()
	if err != nil {
		return err
	}
	if before := b.policy.Swap(loaded); !reflect.DeepEqual(before, loaded) {
		b.pools.Drop("") // whoever was allowed a connection may be no more
		b.mint.Forget("", nil)
	}
	b.shelf.reload()
	b.openAll(ctx)
	return nil
}

// profileChanged forgets all that was obtained under a profile that is another
// one now, or gone.
func (b *Broker) profileChanged(name string) {
	b.Log.Info("profile changed", "profile", name)
	b.pools.Drop(name)
	b.tickets.ForgetAll(name)
	b.mint.Forget(name, nil)
}

// Alive returns nil while the broker's own locks can be had. It says nothing of
// the agent: a watchdog must not restart the broker for that.
func (b *Broker) Alive() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return nil
}

// Shutdown stops accepting, lets calls and proxied requests finish until ctx
// ends, and forgets every credential. The context of Start has ended before.
func (b *Broker) Shutdown(ctx context.Context) error {
	b.door.Close()
	err := b.front.shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		b.Log.Info("requests were cut that did not end in time")
		err = nil
	}
	done := make(chan struct{})
	go func() { b.door.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	b.cutCalls()
	b.mint.Close()
	b.pools.Close()
	b.tickets.Close()
	b.running.Wait()
	<-done
	return err
}
