package broker

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strconv"
	"sync"

	"holdfast/client/broker/loopback"
	"holdfast/client/profile"
	"holdfast/internal/fault"
)

// errEnding is for callers who come, or still wait, when the broker ends.
func errEnding() error {
	return &fault.Error{Kind: fault.Busy, Message: "the broker is ending", Hint: "try again"}
}

// front is the proxy's side towards the loopback interface: its identity, and the
// listener that all profiles share besides those that have their own. What could
// not be opened is tried again when it is wanted.
type front struct {
	options   Options
	newServer func(tls.Certificate) server
	log       *slog.Logger

	opening sync.Mutex // held while something is opened, which may ask the agent; before mu

	mu        sync.Mutex
	identity  *loopback.Identity // nil until the agent has given back its key
	server    server
	listeners map[string]*listener // by profile; "" is the shared one
	faults    map[string]error     // why there is no listener, likewise
	over      bool
	serving   sync.WaitGroup
}

type listener struct {
	net.Listener
	address string
}

func newFront(o Options, newServer func(tls.Certificate) server) *front {
	return &front{options: o, newServer: newServer, log: o.Log, listeners: map[string]*listener{}, faults: map[string]error{}}
}

// open makes sure that the proxy listens for a profile: on the profile's own port,
// or, for nil and for profiles without one, on the shared one. Errors name the
// next step.
func (f *front) open(ctx context.Context, p *profile.Profile) error {
	name, address := "", ""
	if p != nil && p.Proxy.Port != 0 {
		name, address = p.Name, net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Proxy.Port))
	}
	if f.listens(name, address) {
		return nil
	}
	f.opening.Lock()
	defer f.opening.Unlock()
	if f.listens(name, address) {
		return nil
	}
	err := f.identify(ctx)
	if err == nil {
		err = f.listen(name, address)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[name] = err
	return err
}

// listens reports whether there is the listener of that name, at the address
// unless that is empty.
func (f *front) listens(name, address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.listeners[name]
	return l != nil && (address == "" || l.address == address)
}

// identify opens the identity. The caller holds opening.
func (f *front) identify(ctx context.Context) error {
	f.mu.Lock()
	known := f.identity != nil
	f.mu.Unlock()
	if known {
		return nil
	}
	i, err := loopback.Open(ctx, loopback.Options{
		State: f.options.State, Sealer: f.options.Agent, Keyring: f.options.Keyring, KeyFile: f.options.KeyFile, Log: f.log,
	})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.identity, f.server = i, f.newServer(i.Certificate)
	return nil
}

// listen makes a listener and has it served. The caller holds opening.
func (f *front) listen(name, address string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return errEnding()
	}
	if old := f.listeners[name]; old != nil {
		old.Close()
		delete(f.listeners, name)
	}
	l, err := f.bind(name, address)
	if err != nil {
		return err
	}
	own := &listener{Listener: l, address: l.Addr().String()}
	f.listeners[name] = own
	f.log.Info("listening", "address", own.address, "profile", name)
	server := f.server
	f.serving.Go(func() {
		err := server.Serve(l, name)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.listeners[name] == own {
			delete(f.listeners, name)
			f.log.Warn("loopback listener ended", "address", own.address, "error", err)
		}
		l.Close()
	})
	return nil
}

// close ends the listeners of profiles that have no port of their own any more.
func (f *front) close(profiles map[string]*profile.Profile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, l := range f.listeners {
		if p := profiles[name]; name != "" && (p == nil || p.Proxy.Port == 0) {
			delete(f.listeners, name)
			l.Close()
		}
	}
	for name := range f.faults {
		if p := profiles[name]; name != "" && (p == nil || p.Proxy.Port == 0) {
			delete(f.faults, name)
		}
	}
}

// shutdown ends every listener, and requests that last beyond ctx.
func (f *front) shutdown(ctx context.Context) error {
	f.mu.Lock()
	f.over = true
	server := f.server
	clear(f.listeners) // the server closes those that it serves
	if f.options.Passed != nil {
		f.options.Passed.Close()
	}
	f.mu.Unlock()
	var err error
	if server != nil {
		err = server.Shutdown(ctx)
	}
	f.serving.Wait()
	return err
}

// frontState is what status says of the front.
type frontState struct {
	address     string // of the shared listener, now or when it was last
	certificate string // PEM
	key         string
	identity    *loopback.Identity
	fault       error
}

// state describes the front; fault is why the shared listener is not there.
func (f *front) state() frontState {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := frontState{identity: f.identity, fault: f.faults[""]}
	if s.identity != nil {
		s.certificate, s.key = s.identity.PEM, s.identity.Key
	} else {
		s.certificate, s.key = loopback.Kept(f.options.State)
	}
	if l := f.listeners[""]; l != nil {
		s.address = l.address
	} else {
		s.address, _ = loopback.Address(f.options.State)
	}
	return s
}

// where returns where the proxy serves a profile, and why it does not.
func (f *front) where(p *profile.Profile, shared frontState) (address string, flaw error) {
	if p.Proxy.Port == 0 {
		return shared.address, shared.fault
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Proxy.Port)), f.faults[p.Name]
}
