package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/dial"
	"holdfast/test/bench/measure"
	"holdfast/test/daemon"
)

// stubStart is how long a run of the exec plugin takes, against a program that
// does nothing: for a ticket that the broker has, and for a token that takes a
// handshake, hence a signature, and a request to the cluster.
func stubStart(b *bench) {
	c := newCluster(b, 0, func(p *profile.Profile) { p.Proxy.NoPool = true })
	empty := emptyProgram(b)
	nothing := func(int) error { _, err := c.command(empty).Output(); return err }
	cached := func(int) error { c.run(brokerwire.ModeProxy); return nil }
	c.run(brokerwire.ModeProxy)
	b.Say("starts of the plugin, for a ticket")
	b.AtMost("stub_start_vs_empty_cached", 1/b.CompareRates(1, cached, nothing), "ratio", 1.6)

	b.Say("starts of the plugin, for a token that is minted")
	var ratios []float64
	for round := range measure.WarmUps + measure.Rounds {
		var took [2]time.Duration
		for _, i := range measure.Turn(round) {
			c.forget()
			took[i] = measure.Median(b.Timed(1, [...]side{func(int) error { c.run(brokerwire.ModeToken); return nil }, nothing}[i]))
		}
		if round >= measure.WarmUps {
			ratios = append(ratios, float64(took[0])/float64(took[1]))
		}
	}
	b.AtMost("stub_start_vs_empty_fresh", measure.Median(ratios), "ratio", 2.1)
	stubSize(b)
}

// stubSize is the plugin as it is shipped: stripped.
func stubSize(b *bench) {
	path := build(b, "plugin", "holdfast/"+daemon.PluginProgram)
	info, err := os.Stat(path)
	b.Check("plugin", err)
	b.AtMost("stub_size_mib", float64(info.Size())/(1<<20), "MiB", 3)
}

// forget makes the broker forget its minted credentials.
func (c *cluster) forget() { c.call(brokerwire.Forget, brokerwire.ForgetParameters{}, nil) }

// counter adds up the samples of one of the broker's metrics.
func (c *cluster) counter(name string) float64 {
	var reply brokerwire.GetMetricsReply
	c.call(brokerwire.GetMetrics, brokerwire.Empty{}, &reply)
	total := 0.0
	for _, m := range reply.Metrics {
		if m.Name != name {
			continue
		}
		for _, sample := range m.Samples {
			total += sample.Value
		}
	}
	return total
}

func (c *cluster) call(method string, in, out any) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	conn, err := dial.Broker().Connect(ctx, c.broker.Socket)
	c.b.Check("broker", err)
	defer conn.Close()
	c.b.Check(method, conn.Call(ctx, method, in, out))
}

// emptyProgram is a Go program that does nothing.
func emptyProgram(b *bench) string {
	dir := b.Dir()
	b.Check("program", os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	return build(b, "empty", filepath.Join(dir, "main.go"))
}

// build compiles a program as it is shipped.
func build(b *bench, name, source string) string {
	out := filepath.Join(b.Dir(), name)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("go build %s: %w: %s", source, err, text)
	}
	return out
}

// mintedOnce is how long each of many concurrent runs waits that want the same
// credential, against one that is alone, and how many credentials are minted.
func mintedOnce(b *bench) {
	const runs = 100
	c := newCluster(b, time.Second, nil)
	var ratios []float64
	minted := 0.0
	b.Say("%d runs of the plugin that want one token, which takes a second to mint", runs)
	for range 5 {
		c.forget()
		alone := b.Timed(1, func(int) error { c.run(brokerwire.ModeToken); return nil })[0]
		c.forget()
		before := c.counter("holdfast_broker_mints_total")
		var all sync.WaitGroup
		took := make([]time.Duration, runs)
		for i := range runs {
			all.Go(func() {
				start := time.Now()
				c.run(brokerwire.ModeToken)
				took[i] = time.Since(start)
			})
		}
		all.Wait()
		minted = max(minted, c.counter("holdfast_broker_mints_total")-before)
		ratios = append(ratios, float64(measure.Quantile(took, 1))/float64(alone))
	}
	b.AtMost("mints_for_100_concurrent_runs", minted, "mints", 1)
	b.AtMost("concurrent_mint_vs_one", measure.Median(ratios), "ratio", 1.2)
}
