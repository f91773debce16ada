package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"holdfast/internal/varlink"
	"holdfast/test/swtpm"
)

const (
	memorySignatures  = 100_000
	memoryConnections = 1000
	memoryClients     = 32
)

// memoryConfig lets one uid have more connections than the default's 512.
const memoryConfig = "limits:\n  connections-per-uid: 2000\n"

// agentMemory is the agent's resident memory: after a first signature, after
// many, and what idle connections add.
func agentMemory(b *bench) {
	dir := b.Dir()
	config := filepath.Join(dir, "agent.yaml")
	b.Check("configuration", os.WriteFile(config, []byte(memoryConfig), 0o600))
	a := startAgentIn(b, dir, swtpm.Start(b).Device(), "--config", config)
	sign := signer(a.key(b))
	b.Timed(1, sign)
	b.AtMost("agent_rss_mib_idle", a.resident(b), "MiB", 10)

	before := a.resident(b)
	openIdle(b, a.socket, memoryConnections)
	perThousand := (a.resident(b) - before) * 1000 / memoryConnections
	b.AtMost("agent_rss_mib_per_1000_idle_connections", perThousand, "MiB", 12)

	a = startAgent(b, swtpm.Start(b).Device())
	signMany(b, signer(a.key(b)), memorySignatures)
	b.AtMost(fmt.Sprintf("agent_rss_mib_after_%d_signatures", memorySignatures), a.resident(b), "MiB", 16)
}

// openIdle opens connections that have made one call each, and leaves them.
func openIdle(b *bench, socket string, n int) {
	b.Say("opening %d connections", n)
	for i := range n {
		what := fmt.Sprintf("connection %d", i)
		c, err := net.Dial("unix", socket)
		b.Check(what, err)
		conn := varlink.NewConn(c)
		b.Cleanup(func() { conn.Close() })
		b.Check(what, conn.Call(context.Background(), "org.varlink.service.GetInfo", nil, nil))
	}
}

// signMany has clients sign n times together.
func signMany(b *bench, s side, n int) {
	errs := make([]error, memoryClients)
	var all sync.WaitGroup
	for c := range memoryClients {
		all.Go(func() {
			for i := c; i < n && errs[c] == nil; i += memoryClients {
				errs[c] = s(c)
				if i%(n/4) == 0 {
					b.Say("%d of %d signatures", i, n)
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		b.Check("signing", err)
	}
}
