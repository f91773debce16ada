package swtpm

import (
	"bytes"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/go-tpm/tpm2"
)

// Options say how a [Proxy] behaves from the start. The zero value passes
// everything on and counts.
type Options struct {
	// ResourceManager makes the proxy behave like /dev/tpmrm0: any number of
	// connections, each with transient handles of its own, which are loaded
	// before every command of that connection and saved and flushed after it.
	ResourceManager bool

	Delay  map[tpm2.TPMCC]time.Duration // how long the device takes, by command
	Script Script                       // what becomes of commands; nil passes all
	Mutate Mutation                     // what becomes of replies; nil keeps all
	Record bool                         // keep every byte; see Recorded
}

// A Mutation returns what the client gets in place of reply, which it may
// change. It runs on the proxy's goroutines, one call at a time.
type Mutation func(cc tpm2.TPMCC, reply []byte) []byte

// A Proxy stands between clients and a TPM, with a socket of its own. It holds
// the TPM's one connection from its first command until it is closed, and
// serves its clients one command at a time. When the TPM goes away, so do the
// connections that had used it.
type Proxy struct {
	Path string // the data socket; there is no control socket

	dial     func() (*Conn, error)
	listener net.Listener
	clients  sync.WaitGroup
	closed   chan struct{}
	rm       bool

	device   sync.Mutex        // held for each exchange with the TPM, delay included
	handles  map[uint32]uint32 // TPMA_CC by command code; read once
	upstream *Conn             // nil before the first command; guarded by state too
	life     int               // how often upstream has been dialed

	state    sync.Mutex // guards everything below, and is held for moments only
	open     map[net.Conn]struct{}
	delay    map[tpm2.TPMCC]time.Duration
	script   Script
	seen     int // client commands since script was set
	mutate   Mutation
	counts   map[tpm2.TPMCC]int
	record   bool
	recorded bytes.Buffer
}

// NewProxy starts a proxy in front of t. It ends with tb.
func NewProxy(tb TB, t *TPM, o Options) *Proxy {
	tb.Helper()
	p := &Proxy{
		Path: filepath.Join(tempDir(tb), "s"), dial: t.Dial, closed: make(chan struct{}), rm: o.ResourceManager,
		open: map[net.Conn]struct{}{}, delay: maps.Clone(o.Delay), script: o.Script, mutate: o.Mutate,
		counts: map[tpm2.TPMCC]int{}, record: o.Record,
	}
	var err error
	if p.listener, err = net.Listen("unix", p.Path); err != nil {
		tb.Fatalf("swtpm: proxy: %v", err)
	}
	p.clients.Go(p.accept)
	tb.Cleanup(p.Close)
	return p
}

// Device returns the proxy's name as holdfast-agent takes it: swtpm:PATH.
func (p *Proxy) Device() string { return "swtpm:" + p.Path }

// Dial connects to the proxy.
func (p *Proxy) Dial() (*Conn, error) { return dial(p.Path) }

// Close ends every connection and lets go of the TPM.
func (p *Proxy) Close() {
	p.state.Lock()
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	for c := range p.open {
		c.Close()
	}
	if p.upstream != nil {
		p.upstream.Close()
	}
	p.state.Unlock()
	p.listener.Close()
	p.clients.Wait()
}

// Counts returns how many commands the TPM was given since the last
// ResetCounts, by command code: the clients' and the resource manager's.
func (p *Proxy) Counts() map[tpm2.TPMCC]int {
	p.state.Lock()
	defer p.state.Unlock()
	return maps.Clone(p.counts)
}

// Total returns the sum of Counts.
func (p *Proxy) Total() int {
	total := 0
	for _, n := range p.Counts() {
		total += n
	}
	return total
}

// ResetCounts starts counting from zero.
func (p *Proxy) ResetCounts() {
	p.state.Lock()
	defer p.state.Unlock()
	clear(p.counts)
}

// SetDelay makes every command cc take at least d.
func (p *Proxy) SetDelay(cc tpm2.TPMCC, d time.Duration) {
	p.state.Lock()
	defer p.state.Unlock()
	if p.delay == nil {
		p.delay = map[tpm2.TPMCC]time.Duration{}
	}
	p.delay[cc] = d
}

// SetScript replaces the script; its count of commands starts from zero.
func (p *Proxy) SetScript(s Script) {
	p.state.Lock()
	defer p.state.Unlock()
	p.script, p.seen = s, 0
}

// Seen returns how many client commands came since the script was set.
func (p *Proxy) Seen() int {
	p.state.Lock()
	defer p.state.Unlock()
	return p.seen
}

// SetMutation replaces what becomes of replies.
func (p *Proxy) SetMutation(m Mutation) {
	p.state.Lock()
	defer p.state.Unlock()
	p.mutate = m
}

// Recorded returns every byte that clients sent and got so far, in order: what
// a listener on the bus knows. It wants Options.Record.
func (p *Proxy) Recorded() []byte {
	p.state.Lock()
	defer p.state.Unlock()
	return slices.Clone(p.recorded.Bytes())
}
