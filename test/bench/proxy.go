package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"holdfast/test/bench/measure"
)

const (
	streamBytes = 1 << 30
	watches     = 500
)

// proxyOverhead is what the loopback proxy adds to a small request on a connection
// that is open, against the same request straight to the API server.
func proxyOverhead(b *bench) {
	c := newCluster(b, 0, nil)
	direct := get(c.direct(), c.server+"/version")
	client, proxy := c.ours()
	ours := get(client, proxy+"/version")
	b.Say("small requests through the proxy")
	const perRound = 100
	var added []float64
	for round := range measure.WarmUps + measure.Rounds {
		var p50 [2]time.Duration
		for _, i := range measure.Turn(round) {
			p50[i] = measure.Median(b.Timed(perRound, [...]side{ours, direct}[i]))
		}
		if round >= measure.WarmUps {
			added = append(added, float64(p50[0]-p50[1])/float64(time.Microsecond))
		}
	}
	b.AtMost("proxy_request_overhead_us", measure.Median(added), "us", 300)
}

// proxyStream is the rate of big bodies through the proxy, against straight ones,
// and what the broker's memory is afterwards and with many watches open.
func proxyStream(b *bench) {
	c := newCluster(b, 0, nil)
	client, proxy := c.ours()
	straight := c.direct()
	for _, way := range []struct {
		name string
		move func(*http.Client, string) error
	}{{"down", download}, {"up", upload}} {
		b.Say("1 GiB %s", way.name)
		var ratios []float64
		for round := range 4 {
			var took [2]time.Duration
			for _, i := range measure.Turn(round) {
				clients, urls := [...]*http.Client{client, straight}, [...]string{proxy, c.server}
				took[i] = b.Timed(1, func(int) error { return way.move(clients[i], urls[i]) })[0]
			}
			ratios = append(ratios, float64(took[1])/float64(took[0]))
		}
		b.AtLeast("proxy_stream_vs_direct_"+way.name, measure.Median(ratios), "ratio", 0.80)
	}
	b.Say("%d watches", watches)
	for i := range watches {
		response, err := client.Get(proxy + "/watch")
		b.Check(fmt.Sprintf("watch %d", i), err)
		b.Cleanup(func() { response.Body.Close() })
		_, err = io.ReadFull(response.Body, make([]byte, 3))
		b.Check(fmt.Sprintf("watch %d", i), err)
	}
	b.AtMost("proxy_rss_mib", float64(c.broker.Usage().RSS)/(1<<20), "MiB", 40)
}

func get(client *http.Client, url string) side {
	return func(int) error {
		response, err := client.Get(url)
		if err != nil {
			return err
		}
		return finish(response)
	}
}

func finish(response *http.Response) error {
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s, %d bytes", response.Status, n)
	}
	return err
}

func download(client *http.Client, url string) error {
	return get(client, fmt.Sprintf("%s/big?bytes=%d", url, streamBytes))(0)
}

func upload(client *http.Client, url string) error {
	response, err := client.Post(url+"/big", "application/octet-stream", io.LimitReader(zeros{}, streamBytes))
	if err != nil {
		return err
	}
	return finish(response)
}

// signaturesForRuns is how many signatures the agent makes while the plugin and a
// request follow each other, as with one kubectl command after another: a process
// and a connection each.
func signaturesForRuns(b *bench) {
	const runs = 100
	c := newCluster(b, 0, nil)
	b.Say("%d requests, each on a connection and with a ticket of its own", runs)
	for range runs {
		client, proxy := c.ours()
		b.Check("request", get(client, proxy+"/version")(0))
		client.CloseIdleConnections()
	}
	metrics, err := c.agent.Metrics(context.Background())
	b.Check("metrics", err)
	total := 0.0
	for _, m := range metrics {
		if strings.HasPrefix(m.Name, "holdfast_agent_signatures") {
			for _, s := range m.Samples {
				total += s.Value
			}
		}
	}
	b.AtMost("signatures_for_100_requests", total, "signatures", 1)
}
