package upstream

import (
	"crypto/sha256"
	"crypto/tls"
	"maps"
	"slices"
)

// idle reports whether no request is in progress.
func (p *pool) idle() bool {
	conns, dials := p.open()
	return dials == 0 && !slices.ContainsFunc(conns, (*conn).busy)
}

func (p *pool) open() (conns []*conn, dials int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.conns)), len(p.dials)
}

// drain lets every connection end when its requests have ended.
func (p *pool) drain() {
	for _, c := range p.end() {
		c.draining.Store(true)
		c.settle()
	}
	p.leave()
}

// drop cuts every connection, and the handshakes in progress.
func (p *pool) drop() {
	p.cancel()
	for _, c := range p.end() {
		c.cut()
	}
	p.leave()
}

// end keeps new requests out of the pool, and returns its connections.
func (p *pool) end() []*conn {
	p.mu.Lock()
	p.draining = true
	p.sessions = nil
	p.wake()
	p.mu.Unlock()
	conns, _ := p.open()
	return conns
}

// sessionCache returns the TLS sessions of upgrades that sign in with a certificate. A
// session keeps its client's identity, so one certificate never resumes another's.
func (p *pool) sessionCache(leaf []byte) tls.ClientSessionCache {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := sha256.Sum256(leaf); p.sessions == nil || of != p.sessionsOf {
		p.sessions, p.sessionsOf = tls.NewLRUClientSessionCache(4), of
	}
	return p.sessions
}
