package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/brokerwire"
	"holdfast/internal/dial"
	"holdfast/internal/metrics"
)

// metricsOptions holds the options of `metrics`.
type metricsOptions struct {
	agent, broker bool
	textfile      string
}

func (a *app) metricsCommand() *cobra.Command {
	var o metricsOptions
	cmd := &cobra.Command{
		Use: "metrics", Short: "print the counters of the agent and the broker",
		Long: `Asks the agent and the broker for their counters and prints them as OpenMetrics
text. When one of the two does not run, it prints those of the other; the metric
holdfast_up says which answered.

--textfile writes a file for the textfile collector of node_exporter instead, in
the text format of Prometheus: whole or not at all, readable by every user, its
name ending in .prom. Run it from a timer.`,
		Example: indent("holdfast metrics --textfile /var/lib/node_exporter/textfile/holdfast.prom"),
		Args:    arguments(),
		RunE:    a.action(func(ctx context.Context, _ []string) error { return a.metrics(ctx, &o) }),
	}
	f := cmd.Flags()
	f.BoolVar(&o.agent, "agent", false, "ask the agent alone")
	f.BoolVar(&o.broker, "broker", false, "ask the broker alone")
	f.StringVar(&o.textfile, "textfile", "", "write this `FILE` for node_exporter")
	a.jsonFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("textfile", "json")
	return cmd
}

// source is one of the programs that have metrics.
type source struct {
	name string
	ask  func(context.Context) ([]metrics.Metric, error)
}

func (a *app) sources(o *metricsOptions) []source {
	both := o.agent == o.broker
	var list []source
	if o.agent || both {
		list = append(list, source{"agent", a.agentMetrics})
	}
	if o.broker || both {
		list = append(list, source{"broker", a.brokerMetrics})
	}
	return list
}

func (a *app) agentMetrics(ctx context.Context) ([]metrics.Metric, error) {
	return fromAgent(ctx, a, a.timeouts.state, func(c *client.Client) ([]metrics.Metric, error) { return c.Metrics(ctx) })
}

func (a *app) brokerMetrics(ctx context.Context) ([]metrics.Metric, error) {
	var reply brokerwire.GetMetricsReply
	err := a.askBroker(ctx, dial.Broker().Path(), brokerwire.GetMetrics, &reply)
	return reply.Metrics, err
}

// metrics asks the sources that the options name. A source that is not running is
// reported, and is an error only when no other source runs; a denial is always an
// error.
func (a *app) metrics(ctx context.Context, o *metricsOptions) error {
	registry := metrics.New()
	up := registry.Gauge("holdfast_up", "1 when the program answered, else 0.", "program")
	var all []metrics.Metric
	var absent []error
	sources := a.sources(o)
	for _, s := range sources {
		list, err := s.ask(ctx)
		if err != nil && !absence(err) {
			return err
		}
		if err != nil {
			absent = append(absent, err)
			up.Set(0, s.name)
			continue
		}
		up.Set(1, s.name)
		all = append(all, list...)
	}
	none := len(absent) == len(sources)
	all = append(all, registry.Snapshot()...)
	// A file that says that no source runs is worth more than a stale one.
	if !none || o.textfile != "" {
		if err := a.printMetrics(all, o); err != nil {
			return err
		}
	}
	if none {
		return absent[0]
	}
	for _, err := range absent {
		a.tell("notice", err.Error())
	}
	return nil
}

// absence reports whether an error says that the source is not running.
func absence(err error) bool {
	var unreachable *client.UnreachableError
	return errors.As(err, &unreachable)
}

func (a *app) printMetrics(all []metrics.Metric, o *metricsOptions) error {
	if a.asJSON {
		return a.json(brokerwire.GetMetricsReply{Metrics: all})
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(collector(all)); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	if o.textfile != "" {
		if err := prometheus.WriteToTextfile(o.textfile, registry); err != nil {
			return failf("the directory must exist, and you must be able to write to it", "%w", err)
		}
		return nil
	}
	families, err := registry.Gather()
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	encoder := expfmt.NewEncoder(a.stdout, expfmt.NewFormat(expfmt.TypeOpenMetrics))
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return err
		}
	}
	if end, ok := encoder.(expfmt.Closer); ok {
		return end.Close()
	}
	return nil
}
