package broker

import (
	"crypto/ecdsa"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"os"
	"sync"
	"time"

	"holdfast/client/broker/ticket"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

// identities holds, for each process with a ticket, the identity that policy decided
// on when the ticket was issued: the plugin's, whose names and groups the policy's
// rules may mention and which the process alone does not show.
type identities struct {
	mu        sync.Mutex
	byProcess map[ticket.Process]ticketIdentity
	swept     time.Time
}

type ticketIdentity struct {
	identity peer.Identity
	until    time.Time
}

// Identities whose tickets have ended are removed every sweepEvery, and every
// sweepSoon where there are more than maxIdentities.
const (
	sweepEvery    = time.Minute
	sweepSoon     = time.Second
	maxIdentities = 4096
)

// put notes the identity for which a process got its ticket. Lives reports whether a
// process still has a ticket.
func (i *identities) put(p ticket.Process, id peer.Identity, until time.Time, lives func(ticket.Process) bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	if i.byProcess == nil {
		i.byProcess = map[ticket.Process]ticketIdentity{}
	}
	if since := now.Sub(i.swept); since > sweepEvery || len(i.byProcess) >= maxIdentities && since > sweepSoon {
		for process, held := range i.byProcess {
			if now.After(held.until) || !lives(process) {
				delete(i.byProcess, process)
			}
		}
		i.swept = now
	}
	if old := i.byProcess[p]; old.until.After(until) {
		until = old.until // of a ticket for another profile
	}
	i.byProcess[p] = ticketIdentity{identity: id, until: until}
}

func (i *identities) get(p ticket.Process) (peer.Identity, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	held, ok := i.byProcess[p]
	return held.identity, ok
}

// mayProxy decides on each request to the proxy by the policy in force. A process
// without an identity is rejected.
func (b *Broker) mayProxy(holder ticket.Process, profile string) bool {
	id, ok := b.identities.get(holder)
	return ok && b.decide(id, policy.Proxy, profile)
}

// restored notes the identity of a process whose ticket an earlier broker issued.
func (b *Broker) restored(p ticket.Process, plugin peer.Identity, until time.Time) {
	b.identities.put(p, plugin, until, b.issued.tickets.Lives)
}

// ticketKey derives the key of tickets from the proxy's private key, which the next broker
// has too, and from the machine's start: until the next one, a pid and a start time are
// one process's.
func ticketKey(certificate tls.Certificate) ([]byte, error) {
	private, ok := certificate.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the proxy's key is not an ECDSA key")
	}
	secret, err := private.Bytes()
	if err != nil {
		return nil, err
	}
	defer clear(secret)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	return hkdf.Key(sha256.New, secret, boot, "holdfast tickets", sha256.Size)
}
