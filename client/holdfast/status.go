package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

func (a *app) statusCommand() *cobra.Command {
	var wait time.Duration
	show := a.askingWithin(a.timeouts.state, func(ctx context.Context, c *client.Client, _ []string) error {
		status, err := c.Status(ctx)
		if err != nil {
			return err
		}
		rows := a.machine.statusRows(c.Socket(), status)
		full := fullStatus{GetStatusReply: status}
		if brokerThere() {
			broker, err := a.brokerStatus(ctx, &kubeOptions{})
			rows = append(rows, brokerRows(broker, err)...)
			if err == nil {
				full.Broker = &broker
			}
		}
		return a.show(full, func() error { return table(a.stdout, rows...) })
	})
	cmd := &cobra.Command{
		Use: "status", Short: "show the agent, its devices, your identity to it, and the broker",
		Example: indent("holdfast status"),
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.awaitAgent(cmd.Context(), wait)
			return show(cmd, args)
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait up to this `DURATION`, such as 10s, for an agent that starts")
	noDefault(cmd, "wait")
	a.jsonFlag(cmd)
	return cmd
}

// awaitAgent waits until an agent answers, at most for limit.
func (a *app) awaitAgent(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for ctx.Err() == nil {
		if c, err := a.dialFor(ctx, a.timeouts.state); err == nil {
			c.Close()
			return
		}
		select {
		case <-time.After(awaitEvery):
		case <-ctx.Done():
		}
	}
}

// awaitEvery is the time between two looks for an agent that starts.
const awaitEvery = 50 * time.Millisecond

func (m machine) statusRows(socket string, s agentwire.GetStatusReply) [][]string {
	rows := [][]string{
		{"agent", fmt.Sprintf("%s, %s mode, process %d, since %s", s.Version, s.Mode, s.PID, when(s.Started))},
		{"socket", socket},
		{"you", callerOf(s.Caller)},
		{"policy", s.Policy},
		{"audit", s.Audit},
		{"keys", fmt.Sprintf("%d that you may see", s.Keys)},
	}
	for _, d := range s.Devices {
		if message, hint := m.lackOfPCSCD(); d.Backend == pivBackend && does(d.Next, fault.StartPCSCD) && message != "" {
			d.Reason, d.Hint = message, hint
		}
		rows = append(rows, deviceRows(d)...)
	}
	if len(s.Devices) == 0 {
		rows = append(rows, []string{"device", "none"})
	}
	for _, n := range s.Notices {
		rows = append(rows, withHint([]string{"notice", n.Message}, n.Hint)...)
	}
	return rows
}

func callerOf(c agentwire.Caller) string {
	text := fmt.Sprintf("%s, process %d", userName(c.User, c.UID), c.PID)
	if c.User != "" {
		text = fmt.Sprintf("%s (uid %d), process %d", c.User, c.UID, c.PID)
	}
	if c.Unit != "" {
		text += ", unit " + c.Unit
	}
	return text
}

// deviceRows shows what a device is, whether it works, and what to do if not.
func deviceRows(d agentwire.Device) [][]string {
	name := d.Device
	if name == pivBackend { // no card is known
		name = "cards"
	}
	if d.Software {
		name += " (" + softwareTPM + ": no hardware protects its keys)"
	}
	state := fmt.Sprintf("%s since %s", d.State, when(d.Since))
	if d.LockedUntil != nil {
		state += ", until " + clock(*d.LockedUntil)
	}
	if d.Reason != "" {
		state += ": " + d.Reason
	}
	rows := append([][]string{{"device", name}}, withHint([]string{"", state}, d.Hint)...)
	switch {
	case d.Backend == pivBackend && d.Maker != "":
		rows = append(rows, []string{"", d.Maker}) // PIV and its version: the maker is unknown
	case d.Maker != "":
		rows = append(rows, []string{"", "made by " + d.Maker})
	}
	if len(d.Can) > 0 {
		rows = append(rows, []string{"", "makes " + abilities(d.Can)})
	}
	switch {
	case d.TriesLeft == nil:
	case d.Backend == pivBackend:
		rows = append(rows, []string{"", "PIN: " + triesOf(d.TriesLeft, nil)})
		if *d.TriesLeft < 2 {
			rows = append(rows, []string{"", "hint: holdfast piv unblock sets a new PIN, with the PUK; the last try is never spent"})
		}
	default:
		rows = append(rows, []string{"", plural(*d.TriesLeft, "wrong PIN until it locks", "wrong PINs until it locks")})
	}
	return rows
}

func abilities(can []agentwire.Capability) string {
	list := make([]string, len(can))
	for i, c := range can {
		list[i] = algorithmOf(agentwire.Key{Algorithm: c.Algorithm, RSABits: c.RSABits})
	}
	return strings.Join(list, ", ")
}
