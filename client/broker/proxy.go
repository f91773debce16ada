package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"holdfast/client/broker/loopback"
	"holdfast/client/broker/proxy"
	"holdfast/client/profile"
	"holdfast/internal/fault"
	"holdfast/internal/notify"
)

// errEnding is for calls that begin or still wait when the broker ends.
func errEnding() error {
	return &fault.Error{Kind: fault.Busy, Message: "the broker is ending", Hint: "try again"}
}

// proxyListeners is the proxy on the loopback interface: its identity, the listener
// that profiles share, and the listeners of profiles that have a port of their own.
// One that could not be opened is tried again when it is needed.
type proxyListeners struct {
	options   Options
	newServer func(tls.Certificate) *proxy.Proxy
	log       *slog.Logger

	opening sync.Mutex // held while a listener is opened, which may ask the agent; taken before mu

	mu        sync.Mutex
	identity  *loopback.Identity // nil until the agent has given back its key
	server    *proxy.Proxy
	listeners map[string]*listener // by profile; "" for the shared one
	faults    map[string]error     // why there is no listener; likewise
	closed    bool
	serving   sync.WaitGroup
}

type listener struct {
	net.Listener
	address string
}

func newProxyListeners(o Options, newServer func(tls.Certificate) *proxy.Proxy) *proxyListeners {
	return &proxyListeners{options: o, newServer: newServer, log: o.Log, listeners: map[string]*listener{}, faults: map[string]error{}}
}

// open makes sure that the proxy listens for a profile: on the profile's own port,
// or, for nil and for profiles without a port, on the shared one.
func (f *proxyListeners) open(ctx context.Context, p *profile.Profile) error {
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
func (f *proxyListeners) listens(name, address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.listeners[name]
	return l != nil && (address == "" || l.address == address)
}

// identify makes the server with its identity. The caller holds opening.
func (f *proxyListeners) identify(ctx context.Context) error {
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

// listen makes a listener and serves it. The caller holds opening.
func (f *proxyListeners) listen(name, address string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errEnding()
	}
	if old := f.listeners[name]; old != nil {
		f.drop(old)
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

// bind makes the listener of a profile, or the shared one: systemd's, else at the
// address of the command line, else at its previous one, else on any port. A port
// that another process has is tried again: kubeconfigs name it.
func (f *proxyListeners) bind(name, address string) (net.Listener, error) {
	if name != "" {
		return f.listenAt(address)
	}
	l, err := f.bindShared()
	if err != nil {
		return nil, err
	}
	if err := loopback.SetAddress(f.options.State, l.Addr().String()); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (f *proxyListeners) bindShared() (net.Listener, error) {
	if l := f.options.Passed; l != nil {
		f.options.Passed = nil
		return l, nil
	}
	address := f.options.Listen
	if address == "" {
		kept, err := loopback.Address(f.options.State)
		if err != nil {
			return nil, err
		}
		if address = kept; address == "" {
			address = "127.0.0.1:0"
		}
	}
	l, err := f.listenAt(address)
	if err == nil {
		f.options.Listen = l.Addr().String() // port 0 is for the first time
	}
	return l, err
}

// listenAt listens at an address of the loopback interface, or takes over the listener
// that the service manager has kept open there. It has the manager keep the listener,
// so that a restart refuses no connection.
func (f *proxyListeners) listenAt(address string) (net.Listener, error) {
	if err := loopback.CheckAddress(address); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(f.options.Kept, func(l net.Listener) bool { return l.Addr().String() == address }); i >= 0 {
		l := f.options.Kept[i]
		f.options.Kept = slices.Delete(f.options.Kept, i, i+1)
		return l, nil
	}
	l, err := net.Listen("tcp4", address)
	if err == nil {
		if err := notify.Keep(l); err != nil {
			f.log.Warn("service manager", "error", err)
		}
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &fault.Error{
			Kind:    fault.Busy,
			Message: fmt.Sprintf("the proxy cannot listen on %s: another process has the port", address),
			Hint:    "`ss -ltnp` shows which; end it, or give the proxy another port with `holdfast-broker --listen 127.0.0.1:PORT` and write the kubeconfigs again",
			Err:     err,
		}
	}
	return l, err
}

// drop closes a listener for good.
func (f *proxyListeners) drop(l net.Listener) {
	if err := notify.Unkeep(l); err != nil {
		f.log.Warn("service manager", "error", err)
	}
	l.Close()
}

// dropUnused closes the listeners that the broker before this one had and this one does
// not need. It does nothing while there may be one that is still to be opened.
func (f *proxyListeners) dropUnused() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.faults {
		if err != nil {
			return
		}
	}
	for _, l := range f.options.Kept {
		f.drop(l)
	}
	f.options.Kept = nil
}

// close closes the listeners of profiles that have no port of their own any more.
func (f *proxyListeners) close(profiles map[string]*profile.Profile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	obsolete := func(name string) bool {
		p := profiles[name]
		return name != "" && (p == nil || p.Proxy.Port == 0)
	}
	for name, l := range f.listeners {
		if obsolete(name) {
			delete(f.listeners, name)
			f.drop(l)
		}
	}
	maps.DeleteFunc(f.faults, func(name string, _ error) bool { return obsolete(name) })
}

// current returns the server, or nil before the agent has given back its key.
func (f *proxyListeners) current() *proxy.Proxy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.server
}

// shutdown closes every listener, and cuts requests that last beyond ctx.
func (f *proxyListeners) shutdown(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
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

// proxyState is the proxy as status shows it.
type proxyState struct {
	address     string // of the shared listener, now or before
	certificate string // PEM
	key         string
	identity    *loopback.Identity
	fault       error // why there is no shared listener
}

func (f *proxyListeners) state() proxyState {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := proxyState{identity: f.identity, fault: f.faults[""]}
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

// addressOf returns the address at which the proxy serves a profile, and why it does
// not.
func (f *proxyListeners) addressOf(p *profile.Profile, shared proxyState) (address string, flaw error) {
	if p.Proxy.Port == 0 {
		return shared.address, shared.fault
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Proxy.Port)), f.faults[p.Name]
}
