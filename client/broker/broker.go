// Package broker is the network half of holdfast: the varlink service
// io.holdfast.Broker, which gives stock Kubernetes clients credentials backed by the
// agent's keys, and the loopback proxy that signs in for them.
//
// Start at [New], [Broker.Start] and [Broker.Serve]. The parts are in the packages
// below: tickets, upstream connections, minted credentials, the proxy, and the
// proxy's identity on the loopback interface. The broker is a client of the agent
// like any other and holds no user's key. There is no way to put a credential in.
//
// It does not protect a user from programs of the same user: those can ask for a
// credential too. An attacker who takes over the broker can use the keys that the
// agent lets the broker's uid use, for as long as that lasts.
package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
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

// Options configures a broker.
type Options struct {
	Version    string
	System     bool                            // the machine's broker, rather than a user's
	Agent      *client.Client                  //
	State      string                          // a directory of this uid alone
	Profiles   string                          // the directory of the profiles
	Listen     string                          // where the proxy listens, 127.0.0.1:PORT; empty for where it did last, else for any port
	Passed     net.Listener                    // the proxy's listener from systemd; nil when there is none
	Kept       []net.Listener                  // listeners of the broker before this one, which systemd kept
	Keyring    loopback.Keyring                // where the proxy's key is kept when the agent's device cannot seal it; nil where there is none
	KeyFile    bool                            // keep the proxy's key in a file even where it could be sealed, or be in the keyring
	LoadPolicy func() (*policy.Policy, error)  // at the start and at each reload
	Limits     Limits                          //
	Log        *slog.Logger                    // slog's default when nil
	Clocks     func() (boot, up time.Duration) // CLOCK_BOOTTIME and CLOCK_MONOTONIC; the system's when nil
}

// Limits bounds the resources that callers can use. Zero values mean the defaults.
type Limits struct {
	ConnectionsPerUID int           // 320
	Connections       int           // of all uids; 4096
	Request           time.Duration // how long one call may take; 60 s
}

// mint is the part of a [*minted.Mint] that the broker uses.
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
	policy   rules
	profiles *profileCache
	issued   *issued
	watch    *agentWatch
	door     *door.Door
	proxy    *proxyListeners

	identities identities
	running    sync.WaitGroup  // the goroutines of Start
	calls      context.Context // of the calls in progress; ends in Shutdown
	cutCalls   context.CancelFunc
}

// New makes a broker and reads its policy and profiles. It does not ask the agent,
// and accepts no connection yet.
func New(o Options) (*Broker, error) {
	o.setDefaults()
	b := &Broker{
		Options: o, uid: uint32(os.Getuid()), started: time.Now().UTC(),
		registry: metrics.New(),
	}
	if _, err := b.policy.reload(o.LoadPolicy); err != nil {
		return nil, err
	}
	b.calls, b.cutCalls = context.WithCancel(context.Background())
	b.counts = newCounts(b.registry)
	b.issued = &issued{log: o.Log, tickets: ticket.New(ticket.Options{Restored: b.restored})}
	b.profiles = newProfileCache(o.Profiles, b.issued.dropProfile)
	b.watch = &agentWatch{agent: o.Agent, uid: b.uid, log: o.Log, issued: b.issued, back: b.openAll}
	pools := upstream.New(upstream.Options{Agent: o.Agent, Metrics: b.registry, Log: o.Log, Alone: b.watch.keys.alone})
	b.issued.profiles, b.issued.pools = b.profiles, pools
	b.issued.mint = minted.New(minted.Options{Agent: o.Agent, Pools: pools, Metrics: b.registry, Log: o.Log})
	b.proxy = newProxyListeners(o, b.newProxy)
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

// newProxy makes the proxy with its certificate.
func (b *Broker) newProxy(certificate tls.Certificate, own *loopback.Addresses) *proxy.Proxy {
	if key, err := ticketKey(certificate); err != nil {
		b.Log.Warn("tickets will end with this broker", "error", err)
	} else {
		b.issued.tickets.UseKey(key)
	}
	return proxy.New(proxy.Options{
		Certificate: certificate, Tickets: b.issued.tickets, Pools: b.issued.pools,
		Profile: b.profiles.get, At: own.At, Allowed: b.mayProxy, Metrics: b.registry, Log: b.Log,
	})
}

// Start opens the proxy's listeners, and watches the agent and the clocks until ctx
// ends. A listener that cannot be opened now, because the agent cannot be reached or
// another process has the port, is tried again when a caller needs it, and when the
// agent is back.
func (b *Broker) Start(ctx context.Context) {
	now, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	b.openAll(now)
	b.running.Go(func() { b.watch.run(ctx) })
	b.running.Go(func() { b.watchClocks(ctx, clockInterval) })
}

// openAll opens the shared listener and those that profiles need besides.
func (b *Broker) openAll(ctx context.Context) {
	profiles, _, _ := b.profiles.list()
	b.proxy.close(profiles)
	if err := b.proxy.open(ctx, nil); err != nil {
		b.Log.Warn("loopback", "error", err)
	}
	for _, p := range profiles {
		if err := b.proxy.open(ctx, p); err != nil && p.Proxy.Port != 0 {
			b.Log.Warn("loopback", "profile", p.Name, "error", err)
		}
	}
	b.proxy.dropUnused()
}

// Reload reads the policy and the profiles again. A policy that cannot be read
// leaves the old one in force, and so does a profile. New requests get new connections;
// those in progress go on, unless the policy changed.
func (b *Broker) Reload(ctx context.Context) error {
	changed, err := b.policy.reload(b.LoadPolicy)
	if changed {
		b.issued.dropAll("the broker's policy changed")
	}
	b.profiles.reload()
	b.issued.retireKey("", "reload")
	b.openAll(ctx)
	return err
}

// Alive returns nil while the broker's own locks can be had. It asks neither the agent
// nor a file system, and takes no lock that is held while something else does: a
// watchdog must not restart the broker for those.
func (b *Broker) Alive() error {
	_ = b.policy.reloadError() // each of these takes a lock
	_ = b.watch.fault()
	_, _ = b.identities.get(ticket.Process{})
	return nil
}

// Grace returns when no upgraded connection of the proxy (exec, attach, port-forward) and
// no followed log is open, or when ctx ends. The broker serves as before.
func (b *Broker) Grace(ctx context.Context) {
	if server := b.proxy.current(); server != nil {
		server.WaitEndless(ctx)
	}
}

// Shutdown stops accepting, lets calls and proxied requests finish until ctx
// ends, and forgets every credential. The context of Start has ended before.
func (b *Broker) Shutdown(ctx context.Context) error {
	b.door.Close()
	err := b.proxy.shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		b.Log.Info("requests that did not end in time were cut")
		err = nil
	}
	done := make(chan struct{})
	go func() { b.door.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	b.cutCalls()
	b.issued.close()
	b.running.Wait()
	<-done
	return err
}
