package upstream

import "time"

// Limit changes the limits of pools before their first use.
func (p *Pools) Limit(poolsPerUID, pools, connections int) {
	p.limits.poolsPerUID, p.limits.pools, p.limits.connections = poolsPerUID, pools, connections
}

// Wait changes how long connecting and a handshake may take, also one that
// a user may have to allow.
func (p *Pools) Wait(dial, handshake, user time.Duration) {
	p.limits.dial, p.limits.handshake, p.limits.user = dial, handshake, user
}

// Len returns how many pools new requests use, and how many there are in all.
func (p *Pools) Len() (current, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.current), len(p.all)
}
