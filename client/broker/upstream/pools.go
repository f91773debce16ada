package upstream

import (
	"cmp"
	"time"

	"holdfast/client/profile"
)

// identity is the key of a pool. Requests share connections when their uid, and all
// that the profile says about the cluster and the key, are equal.
type identity struct {
	uid     uint32
	profile string
	key     string
	cluster profile.Cluster
	noPool  bool
	idle    time.Duration
	maxAge  time.Duration
}

func identify(uid uint32, p *profile.Profile) identity {
	return identity{
		uid: uid, profile: p.Name, key: p.Key, cluster: p.Cluster, noPool: p.Proxy.NoPool,
		idle: cmp.Or(p.Proxy.IdleTimeout, profile.DefaultIdleTimeout), maxAge: cmp.Or(p.Proxy.MaxAge, profile.DefaultMaxAge),
	}
}

// limits bounds the resources that callers can use, and the waits.
type limits struct {
	poolsPerUID int
	pools       int
	connections int           // of one pool
	http1Dials  int           // handshakes of one pool at a time, where a connection serves one request at a time
	dial        time.Duration // to the server or its proxy
	handshake   time.Duration
	user        time.Duration // a handshake that a user may have to allow
}

var defaultLimits = limits{
	poolsPerUID: 64, pools: 1024, connections: 1024, http1Dials: 8,
	dial: 10 * time.Second, handshake: 10 * time.Second, user: time.Minute,
}

// pool returns the pool for id, made when there is none or when it is as old as
// the profile lets it get.
func (p *Pools) pool(id identity) (*pool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, failure(Network, "try again", "the broker is ending")
	}
	now := time.Now().Round(0) // wall time: it advances while the machine sleeps
	if found := p.current[id]; found != nil {
		if now.Sub(found.made) < id.maxAge {
			found.used = now
			return found, nil
		}
		p.detach(found)
		p.running.Go(found.drain) // which takes the lock that is held here
	}
	if err := p.makeRoom(id.uid); err != nil {
		return nil, err
	}
	made, err := newPool(p, id)
	if err != nil {
		return nil, err
	}
	made.made, made.used = now, now
	p.current[id] = made
	p.all[made] = struct{}{}
	return made, nil
}

// makeRoom evicts the least recently used pool without a request when there are too
// many, of the uid or in all. No request in progress is lost.
func (p *Pools) makeRoom(uid uint32) error {
	own := 0
	for id := range p.current {
		if id.uid == uid {
			own++
		}
	}
	tooMany := own >= p.limits.poolsPerUID
	if !tooMany && len(p.current) < p.limits.pools {
		return nil
	}
	var oldest *pool
	for id, each := range p.current {
		if (id.uid == uid || !tooMany) && (oldest == nil || each.used.Before(oldest.used)) && each.idle() {
			oldest = each
		}
	}
	if oldest == nil {
		return failure(Network, "end some of them", "too many clusters have requests of uid %d in progress (%d)", uid, own)
	}
	p.detach(oldest)
	p.running.Go(oldest.drain)
	return nil
}

// detach keeps new requests out of a pool. The lock is held.
func (p *Pools) detach(each *pool) {
	if p.current[each.id] == each {
		delete(p.current, each.id)
	}
}

// take detaches the pools of a profile and returns them; with old, also those that
// were detached before.
func (p *Pools) take(profile string, uid *uint32, old bool) []*pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var taken []*pool
	for each := range p.all {
		if profile != "" && each.id.profile != profile || uid != nil && each.id.uid != *uid {
			continue
		}
		if old || p.current[each.id] == each {
			p.detach(each)
			taken = append(taken, each)
		}
	}
	return taken
}

// forget removes a detached pool that has no connection.
func (p *Pools) forget(each *pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current[each.id] != each {
		delete(p.all, each)
	}
}

// begin starts f in a goroutine. It returns false when the pools are closed.
func (p *Pools) begin(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.running.Go(f)
	return true
}

// enter counts a connection until running.Done. It returns false when the pools are
// closed.
func (p *Pools) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.running.Add(1)
	return true
}
