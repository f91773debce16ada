// Package agent is the varlink service io.holdfast.Agent: it identifies its
// callers, asks policy, parses what is to be signed, records the decision,
// queues the device and verifies what comes back.
//
// Start at [Agent.sign], which is the natural path of one signature in order,
// and at [Agent.Serve], which comes before it: package door identifies and admits
// a caller before a byte of its request is read.
//
// The package opens no network socket, parses no HTTP and holds no private key.
// It does not protect a key against its owner: where the agent runs under its
// users' own uid, that uid can also reach the device and the key records.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"holdfast/agent/audit"
	"holdfast/agent/grants"
	"holdfast/agent/queue"
	"holdfast/agent/store"
	"holdfast/internal/door"
	"holdfast/internal/keys"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
	"holdfast/internal/varlink"
)

// Options are the parts of an Agent. All members but Notices, Person and Log are
// required. The agent borrows them: the caller closes what it opened, after
// [Agent.Shutdown].
type Options struct {
	Version    string
	System     bool                           // machine or node mode: many users, each with keys of their own
	Store      *store.Store                   //
	Audit      *audit.Log                     //
	AuditPath  string                         // the path of Audit's file
	LoadPolicy func() (*policy.Policy, error) // called by New and by Reload
	Backends   []keys.Backend                 // the first one is the default
	Limits     Limits                         // zero members mean the defaults
	Notices    func() []Notice                // more notices for status; may be nil
	Person     Person                         // nil: the agent shows no prompts
	Log        *slog.Logger                   // nil: slog.Default()
}

// Limits bound what callers can use up.
type Limits struct {
	Queue             queue.Limits
	ConnectionsPerUID int           // open connections of one uid; default 320
	Connections       int           // open connections of all uids; default 4096
	UnlockDefault     time.Duration // how long a PIN unlocks a key; default 15 min
	UnlockMax         time.Duration // the longest a caller may ask for; default 1 h
	Request           time.Duration // one request, queue included; default 60 s (key creation: 5 min)
}

// Notice is one fact that status shows, and the next step. With Problem, something does
// not work.
type Notice struct {
	Message, Hint string
	Problem       bool
}

// Agent is the service. Its methods are safe for concurrent use.
type Agent struct {
	Options
	service *varlink.Service
	uid     uint32 // the agent's own
	peers   peer.Identifier
	started time.Time
	devices map[string]*device // by backend name; fixed after New
	policy  atomic.Pointer[policy.Policy]
	door    *door.Door
	watch   watchers
	counts  *counters
	prompts prompts
	grants  *grants.Grants
	now     func() time.Time // the clock of grants
	faults  keyFaults
	claims  claims
	rates   rateLimits

	auditReads semaphore // reads of the whole audit log
	cardReads  semaphore // looks at all cards
}

// keyID names a key record.
type keyID = grants.Key

func idOf(r store.Record) keyID { return keyID{Owner: r.Owner.UID, Name: r.Name} }

// New returns an agent and reads its policy. The agent accepts no caller before
// [Agent.Serve].
func New(o Options) (*Agent, error) { return newAt(o, time.Now) }

// newAt is New with a clock for grants.
func newAt(o Options, now func() time.Time) (*Agent, error) {
	o.setDefaults()
	a := &Agent{
		Options:    o,
		uid:        uint32(os.Getuid()),
		started:    time.Now().UTC(),
		devices:    map[string]*device{},
		grants:     grants.New(now),
		now:        now,
		rates:      newRateLimits(),
		auditReads: make(semaphore, 1),
		cardReads:  make(semaphore, 1),
	}
	a.counts = newCounters(o.Version, a.started)
	a.watch.init()
	a.prompts.init()
	p, err := o.LoadPolicy()
	if err != nil {
		return nil, err
	}
	a.policy.Store(p)
	for _, b := range o.Backends {
		d := newDevice(b, o.Limits.Queue, a.counts, a.deviceChanged)
		a.devices[b.Name()] = d
		if divided, ok := b.(keys.Divided); ok {
			divided.OnChange(func(unit string, gone bool) { a.unitChanged(d, unit, gone) })
		}
	}
	a.door = a.newDoor()
	a.service = a.newService()
	return a, a.Audit.Append(audit.Record{Kind: audit.KindStart, Detail: map[string]string{"version": o.Version}})
}

func (o *Options) setDefaults() {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	l := &o.Limits
	setDefault(&l.Queue.PerPeer, 256)
	setDefault(&l.Queue.Total, 1024)
	setDefault(&l.UnlockDefault, 15*time.Minute)
	setDefault(&l.UnlockMax, time.Hour)
	setDefault(&l.Request, time.Minute)
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// wallClock returns the time without a monotonic reading: the monotonic clock stands
// still while the machine sleeps, and the time of a grant must not.
func (a *Agent) wallClock() time.Time { return a.now().UTC().Round(0) }

// Reload reads the policy and the key records again. With an error, the agent keeps
// both as they were. A key that was set aside for a wrong signature may sign again.
func (a *Agent) Reload(context.Context) error {
	p, err := a.LoadPolicy()
	if err == nil {
		err = a.Store.Reload()
	}
	if err != nil {
		return err
	}
	a.policy.Store(p)
	a.faults.flaws.Clear()
	a.watch.publish(event{what: "policy"})
	return a.Audit.Append(audit.Record{Kind: audit.KindReload, Detail: map[string]string{"policy": p.Source()}})
}

// Alive returns nil while the agent's own loops run. It does not report the state of
// the devices: a wedged TPM must not make a watchdog restart the agent.
func (a *Agent) Alive() error {
	for _, d := range a.devices {
		if err := d.lanes.Alive(); err != nil {
			return err
		}
	}
	return nil
}

// Shutdown stops accepting, withdraws prompts, lets calls in progress finish until
// ctx ends, and returns when no connection and no device work is left.
func (a *Agent) Shutdown(ctx context.Context) error {
	a.door.Close()
	a.watch.close()
	a.prompts.close()
	done := make(chan struct{})
	go func() { a.door.Wait(); a.prompts.all.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	var err error
	for _, d := range a.devices {
		if e := d.lanes.Close(ctx); e != nil && err == nil {
			err = e
		}
	}
	<-done
	return errors.Join(err, a.Audit.Append(audit.Record{Kind: audit.KindStop}))
}
