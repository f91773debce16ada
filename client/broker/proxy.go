package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"holdfast/client/broker/loopback"
	"holdfast/client/broker/proxy"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
	"holdfast/internal/notify"
)

// errEnding is for calls that begin or still wait when the broker ends.
func errEnding() error {
	return &fault.Error{Kind: fault.Busy, Message: "the broker is ending", Hint: "try again"}
}

// proxyListeners is the proxy on the loopback interface: its identity, and its listeners.
// One listener serves every address of the interface, and so each profile at its own.
// Where the kernel refuses that, there is a listener for the shared address and one for
// each profile's. A profile may also have a port of its own. A listener that could not
// be opened is tried again when it is needed.
type proxyListeners struct {
	options   Options
	newServer func(tls.Certificate, *loopback.Addresses) *proxy.Proxy
	log       *slog.Logger

	opening sync.Mutex // held while a listener is opened, which may ask the agent; taken before mu

	mu        sync.Mutex
	identity  *loopback.Identity // nil until the agent has given back its key
	server    *proxy.Proxy
	own       *loopback.Addresses  // of profiles; nil while identity is
	listeners map[string]*listener // by profile; "" for the shared one
	faults    map[string]error     // why there is no listener; likewise
	closed    bool
	serving   sync.WaitGroup
}

type listener struct {
	net.Listener
	address string // for the shared one, where profiles without an address of their own are
	all     bool   // it serves every address of the loopback interface
}

func newProxyListeners(o Options, newServer func(tls.Certificate, *loopback.Addresses) *proxy.Proxy) *proxyListeners {
	return &proxyListeners{options: o, newServer: newServer, log: o.Log, listeners: map[string]*listener{}, faults: map[string]error{}}
}

// open makes sure that the proxy listens for a profile: on the profile's own port, or at
// its own address; for nil, on the shared listener.
func (f *proxyListeners) open(ctx context.Context, p *profile.Profile) error {
	if p == nil || p.Proxy.Port == 0 {
		if err := f.openOne(ctx, "", ""); err != nil || p == nil {
			return err
		}
		if address := f.ownListener(p.Name); address != "" {
			if err := f.openOne(ctx, p.Name, address); err != nil { // the shared address serves it too
				f.log.Warn("loopback", "profile", p.Name, "address", address, "error", err)
			}
		}
		return nil
	}
	return f.openOne(ctx, p.Name, net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Proxy.Port)))
}

// ownListener returns the address of a profile where it needs a listener of its own, or
// "" where the shared one serves it.
func (f *proxyListeners) ownListener(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	shared := f.listeners[""]
	if shared == nil || shared.all {
		return ""
	}
	own, err := f.own.Of(name)
	if err != nil {
		f.log.Warn("loopback", "profile", name, "error", err)
		return ""
	}
	_, port, _ := net.SplitHostPort(shared.address)
	return net.JoinHostPort(own.Address.String(), port)
}

func (f *proxyListeners) openOne(ctx context.Context, name, address string) error {
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
	own, err := loopback.OpenAddresses(f.options.State, i)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.identity, f.own, f.server = i, own, f.newServer(i.Certificate, own)
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
	own := &listener{Listener: l, address: l.Addr().String(), all: loopback.ReachOf(l) == loopback.All}
	if own.all {
		own.address = f.options.Listen
	}
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
			f.drop(l)
			return
		}
		l.Close() // at the end of the broker: the service manager keeps its own
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
	if err := loopback.SetAddress(f.options.State, f.options.Listen); err != nil {
		f.drop(l)
		return nil, err
	}
	return l, nil
}

// bindShared makes the shared listener, and leaves its address in options.Listen: where
// it serves all addresses of the interface, 127.0.0.1 or the one that was asked for.
func (f *proxyListeners) bindShared() (net.Listener, error) {
	l, host, err := f.makeShared()
	if err != nil {
		return nil, err
	}
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		l.Close()
		return nil, err
	}
	if at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(host, at.Port())
	}
	f.options.Listen = at.String() // port 0 is for the first time
	return l, nil
}

func (f *proxyListeners) makeShared() (_ net.Listener, host netip.Addr, _ error) {
	host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if l := f.options.Passed; l != nil {
		f.options.Passed = nil
		return l, host, nil
	}
	address := f.options.Listen
	if address == "" {
		kept, err := loopback.Address(f.options.State)
		if err != nil {
			return nil, host, err
		}
		address = cmp.Or(kept, "127.0.0.1:0")
	}
	if err := loopback.CheckAddress(address); err != nil {
		return nil, host, err
	}
	at := netip.MustParseAddrPort(address)
	if l := f.takeKept(netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()).String()); l != nil {
		return l, at.Addr(), nil
	}
	if at.Addr() == host { // at another address, other brokers may have the port at theirs
		if l, err := loopback.ListenAll(at.Port()); err == nil {
			f.keep(l)
			return l, at.Addr(), nil
		}
	}
	l, err := f.listenAt(address)
	return l, at.Addr(), err
}

// listenAt listens at an address of the loopback interface, or takes over the listener
// that the service manager has kept open there. It has the manager keep the listener,
// so that a restart refuses no connection.
func (f *proxyListeners) listenAt(address string) (net.Listener, error) {
	if err := loopback.CheckAddress(address); err != nil {
		return nil, err
	}
	if l := f.takeKept(address); l != nil {
		return l, nil
	}
	l, err := net.Listen("tcp4", address)
	if err == nil {
		f.keep(l)
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

// takeKept returns the listener at an address that the service manager has kept, or nil.
func (f *proxyListeners) takeKept(address string) net.Listener {
	for i, l := range f.options.Kept {
		if l.Addr().String() == address {
			f.options.Kept = slices.Delete(f.options.Kept, i, i+1)
			return l
		}
	}
	return nil
}

// keep has the service manager keep a listener.
func (f *proxyListeners) keep(l net.Listener) {
	if err := notify.Keep(l); err != nil {
		f.log.Warn("service manager", "error", err)
	}
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

// close closes the listeners of profiles that are gone, or that have no port of their own
// any more.
func (f *proxyListeners) close(profiles map[string]*profile.Profile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	obsolete := func(name string) bool {
		p, shared := profiles[name], f.listeners[""]
		return name != "" && (p == nil || p.Proxy.Port == 0 && (shared == nil || shared.all))
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

// endpointOf returns where the proxy serves a profile, its certificate there, and the
// name that the client has to ask for, which only the shared address needs.
func (f *proxyListeners) endpointOf(p *profile.Profile, shared proxyState) (e brokerwire.Endpoint, serverName string, flaw error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Proxy.Port != 0 {
		return brokerwire.Endpoint{Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Proxy.Port)), Certificate: shared.certificate}, "", f.faults[p.Name]
	}
	e, serverName = brokerwire.Endpoint{Address: shared.address, Certificate: shared.certificate}, p.ServerName()
	l := f.listeners[""]
	if f.own == nil || shared.address == "" || l != nil && !l.all && f.listeners[p.Name] == nil {
		return e, serverName, shared.fault
	}
	own, err := f.own.Of(p.Name)
	if err != nil {
		return e, serverName, err
	}
	_, port, _ := net.SplitHostPort(shared.address)
	return brokerwire.Endpoint{Address: net.JoinHostPort(own.Address.String(), port), Certificate: own.PEM}, "", shared.fault
}
