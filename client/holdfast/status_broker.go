package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/brokerwire"
	"holdfast/internal/dial"
)

// fullStatus is the JSON form of `holdfast status`: the agent's status, and the
// broker's where there is a broker.
type fullStatus struct {
	agentwire.GetStatusReply
	Broker *brokerwire.GetStatusReply `json:"broker,omitempty"`
}

// brokerThere reports whether there should be a broker: its socket exists, or this
// user has profiles. Most users have none, and then it is not mentioned.
func brokerThere() bool {
	info, err := os.Stat(dial.Broker().Path())
	if err == nil && info.Mode().Type() == os.ModeSocket {
		return true
	}
	profiles, faults, _ := profile.Load(profile.Directory(false)) // what cannot be read needs no broker
	return len(profiles)+len(faults) > 0
}

// brokerRows shows the broker, or why it does not answer.
func brokerRows(s brokerwire.GetStatusReply, err error) [][]string {
	if err != nil {
		p := explain(err)
		return withHint([]string{"broker", p.message}, p.hint)
	}
	rows := [][]string{
		{"broker", fmt.Sprintf("%s, %s mode, process %d, since %s", s.Version, s.Mode, s.PID, when(s.Started))},
		{"", "policy " + s.Policy},
		{"", "agent " + s.AgentSocket},
		{"proxy", orNowhere(s.Endpoint.Address) + ", key " + orNowhere(s.Endpoint.Key)},
	}
	for _, p := range s.Profiles {
		rows = append(rows, profileRows(p)...)
	}
	for _, n := range s.Notices {
		rows = append(rows, withHint([]string{"notice", n.Message}, n.Hint)...)
	}
	return rows
}

// profileRows shows a profile: its server, key and modes, and its open connections.
func profileRows(p brokerwire.Profile) [][]string {
	if p.Server == "" { // its file cannot be read at all
		return withHint([]string{"profile", p.Name + ": " + p.Fault}, p.Hint)
	}
	rows := [][]string{
		{"profile", fmt.Sprintf("%s: %s with key %s, modes %s", p.Name, p.Server, p.Key, strings.Join(p.Modes, ", "))},
		{"", strings.Join([]string{
			plural(p.Connections, "connection", "connections"), plural(p.Tickets, "ticket", "tickets"),
			fmt.Sprintf("%d minted", p.Minted), plural(p.Signatures, "signature", "signatures"),
		}, ", ")},
	}
	if p.Fault != "" {
		rows = append(rows, withHint([]string{"", p.Fault}, p.Hint)...)
	}
	return rows
}

// withHint adds the row of a hint, in the last column of the row.
func withHint(row []string, hint string) [][]string {
	if hint == "" {
		return [][]string{row}
	}
	below := make([]string, len(row))
	below[len(row)-1] = "hint: " + hint
	return [][]string{row, below}
}

func orNowhere(place string) string { return cmp.Or(place, "nowhere yet") }

// broker checks the broker, where there is one.
func (f *findings) broker(ctx context.Context, a *app) {
	if !brokerThere() {
		return
	}
	s, err := a.brokerStatus(ctx, &kubeOptions{})
	if err != nil {
		f.unreachable("broker", err)
		return
	}
	f.ok("broker", "%s in %s mode answers at %s; its proxy is at %s", s.Version, s.Mode, dial.Broker().Path(), orNowhere(s.Endpoint.Address))
	for _, n := range s.Notices {
		f.note("broker", n.Message, n.Hint)
	}
	f.profiles(s.Profiles)
}

// profiles reports the profiles that cannot be used.
func (f *findings) profiles(list []brokerwire.Profile) {
	for _, p := range list {
		if p.Fault != "" {
			f.bad("profile "+p.Name, p.Fault, p.Hint)
		}
	}
}
