package broker

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

// getStatus tells everybody who may ask how the broker is, and each caller of the
// profiles that they may use. Faults of files are for those who administer it.
func (b *Broker) getStatus(ctx context.Context, caller *peer.Peer, _ *brokerwire.Empty) (*brokerwire.GetStatusReply, error) {
	if !b.decide(caller.Identity, policy.Status, "") {
		return nil, &fault.Error{Kind: fault.Denied, Message: fmt.Sprintf("uid %d may not ask for the broker's state", caller.UID), Hint: "the broker's policy says who may"}
	}
	front := b.front.state()
	reply := &brokerwire.GetStatusReply{
		Version: b.Version, PID: os.Getpid(), Started: b.started, Mode: "user",
		Policy: b.policy.Load().Source(), AgentSocket: b.Agent.Socket(),
		Endpoint: brokerwire.Endpoint{Address: front.address, Certificate: front.certificate, Key: front.key},
		Profiles: []brokerwire.Profile{}, Notices: []brokerwire.Notice{},
	}
	if b.System {
		reply.Mode = "system"
	}
	profiles, faults, broken := b.shelf.list()
	agent := b.inquiry(ctx)
	defer agent.end()
	for name, p := range profiles {
		if b.mayUse(caller.Identity, name) {
			reply.Profiles = append(reply.Profiles, b.wireProfile(p, faults[name], front, agent))
		}
	}
	if b.privileged(caller.Identity) {
		for name, flaw := range faults {
			if profiles[name] == nil {
				reply.Profiles = append(reply.Profiles, brokerwire.Profile{Name: name, Modes: []string{}, Fault: flaw.Error(), Hint: mendIt})
			}
		}
		reply.Notices = b.notices(front, broken)
	}
	slices.SortFunc(reply.Profiles, func(a, b brokerwire.Profile) int { return strings.Compare(a.Name, b.Name) })
	return reply, nil
}

const mendIt = "mend the file, or write it anew with `holdfast kubeconfig add`"

func (b *Broker) wireProfile(p *profile.Profile, flaw error, front frontState, agent *inquiry) brokerwire.Profile {
	connections, signatures := b.pools.Counts(p.Name)
	w := brokerwire.Profile{
		Name: p.Name, Server: p.Cluster.Server, Key: p.Key, Modes: modesOf(p), TLSServerName: p.ServerName(),
		Connections: connections, Signatures: signatures, Tickets: b.tickets.Count(p.Name), Minted: b.mint.Count(p.Name),
	}
	address, closed := b.front.where(p, front)
	w.Address = address
	switch {
	case flaw != nil:
		w.Fault, w.Hint = "its file has a fault, and the profile of before is in use: "+flaw.Error(), mendIt
	case closed != nil && p.Proxy.Port != 0: // that of the shared listener is a notice
		known := toFault(closed, p.Name)
		w.Fault, w.Hint = known.Message, known.Advice()
	default:
		if err := agent.fault(p.Key); err != nil {
			known := toFault(err, p.Name)
			w.Fault, w.Hint = known.Message, known.Advice()
		}
	}
	return w
}

// replacedFor is how long status says that the proxy's key is another one.
const replacedFor = 7 * 24 * time.Hour

// notices are what is not as it should be with the broker as a whole.
func (b *Broker) notices(front frontState, broken error) []brokerwire.Notice {
	list := []brokerwire.Notice{}
	add := func(hint, format string, values ...any) {
		list = append(list, brokerwire.Notice{Message: fmt.Sprintf(format, values...), Hint: hint})
	}
	if front.fault != nil {
		known := toFault(front.fault, "")
		add(known.Advice(), "the proxy does not listen: %s", known.Message)
	}
	if err := b.keys.fault(); err != nil {
		known := toFault(err, "")
		add(known.Advice(), "the agent is not being watched: %s", known.Message)
	}
	if i := front.identity; i != nil && i.KeyFile {
		add("it guards loopback against other users only; a TPM would seal it, and a desktop's keyring keep it, see holdfast-broker(8)", "the proxy's private key is in the file %s", i.Key)
	}
	if i := front.identity; i != nil && time.Since(i.Replaced) < replacedFor {
		add("write them again: `holdfast kubeconfig add`", "the proxy's key was lost and made anew on %s: kubeconfigs from before it do not fit", i.Replaced.Format(time.RFC3339))
	}
	if broken != nil {
		add("the profiles of before stay in use", "profiles: %v", broken)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reload != nil {
		add("mend it and reload the broker (SIGHUP)", "the policy of before stays in force: %v", b.reload)
	}
	if b.policy.Load().AcceptRacyUnits {
		add("leave it out on Linux 6.5 and later", "the policy accepts units that the kernel cannot tell for certain (accept-racy-units)")
	}
	return list
}
