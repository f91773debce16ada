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
	"holdfast/internal/peer"
)

// getStatus returns the broker's state to a caller that the policy lets ask for it,
// with the profiles that the caller may use. An administrator sees faulty files too.
func (b *Broker) getStatus(ctx context.Context, caller *peer.Peer, _ *brokerwire.Empty) (*brokerwire.GetStatusReply, error) {
	if err := b.mayAsk(caller); err != nil {
		return nil, err
	}
	shared := b.proxy.state()
	reply := &brokerwire.GetStatusReply{
		Version: b.Version, PID: os.Getpid(), Started: b.started, Mode: "user",
		Policy: b.policy.Load().Source(), AgentSocket: b.Agent.Socket(),
		Endpoint: brokerwire.Endpoint{Address: shared.address, Certificate: shared.certificate, Key: shared.key},
		Profiles: []brokerwire.Profile{}, Notices: []brokerwire.Notice{},
	}
	if b.System {
		reply.Mode = "system"
	}
	profiles, faults, broken := b.profiles.list()
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	agent := &keyCheck{agent: b.Agent, ctx: ctx, results: map[string]error{}}
	for name, p := range profiles {
		if b.mayUse(caller.Identity, name) {
			reply.Profiles = append(reply.Profiles, b.wireProfile(p, faults[name], shared, agent))
		}
	}
	if b.privileged(caller.Identity) {
		for name, flaw := range faults {
			if profiles[name] == nil {
				reply.Profiles = append(reply.Profiles, brokerwire.Profile{Name: name, Modes: []string{}, Fault: flaw.Error(), Hint: fixFile})
			}
		}
		reply.Notices = b.notices(shared, broken)
	}
	slices.SortFunc(reply.Profiles, func(a, b brokerwire.Profile) int { return strings.Compare(a.Name, b.Name) })
	return reply, nil
}

const fixFile = "repair the file, or write it again with `holdfast kubeconfig add`"

func (b *Broker) wireProfile(p *profile.Profile, flaw error, shared proxyState, agent *keyCheck) brokerwire.Profile {
	connections, signatures := b.issued.pools.Counts(p.Name)
	w := brokerwire.Profile{
		Name: p.Name, Server: p.Cluster.Server, Key: p.Key, Modes: p.Modes,
		Connections: connections, Signatures: signatures, Tickets: b.issued.tickets.Count(p.Name), Minted: b.issued.mint.Count(p.Name),
	}
	endpoint, serverName, closed := b.proxy.endpointOf(p, shared)
	w.Address, w.Certificate, w.TLSServerName = endpoint.Address, endpoint.Certificate, serverName
	switch {
	case flaw != nil:
		w.Fault, w.Hint = "its file has a fault, and the previous profile is in use: "+flaw.Error(), fixFile
	case closed != nil && slices.Contains(p.Modes, profile.ModeProxy):
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

// noticeReplaced is how long status says that the proxy's key was replaced.
const noticeReplaced = 7 * 24 * time.Hour

// notices returns the faults of the broker as a whole.
func (b *Broker) notices(shared proxyState, broken error) []brokerwire.Notice {
	list := []brokerwire.Notice{}
	add := func(hint, format string, values ...any) {
		list = append(list, brokerwire.Notice{Message: fmt.Sprintf(format, values...), Hint: hint})
	}
	if shared.fault != nil {
		known := toFault(shared.fault, "")
		add(known.Advice(), "the proxy does not listen: %s", known.Message)
	}
	if err := b.watch.fault(); err != nil {
		known := toFault(err, "")
		add(known.Advice(), "the agent is not being watched: %s", known.Message)
	}
	if i := shared.identity; i != nil && i.KeyFile {
		add("it guards loopback against other users only; a TPM would seal it, and a desktop's keyring keep it, see holdfast-broker(8)", "the proxy's private key is in the file %s", i.Key)
	}
	if i := shared.identity; i != nil && time.Since(i.Replaced) < noticeReplaced {
		add("write them again: `holdfast kubeconfig add`", "the proxy's key was lost and replaced on %s: older kubeconfigs do not fit", i.Replaced.Format(time.RFC3339))
	}
	if broken != nil {
		add("the previous profiles stay in use", "profiles: %v", broken)
	}
	if err := b.policy.reloadError(); err != nil {
		add("repair it and reload the broker (SIGHUP)", "the previous policy stays in force: %v", err)
	}
	if b.policy.Load().AcceptRacyUnits {
		add("leave it out on Linux 6.5 and later", "the policy accepts units that the kernel cannot tell for certain (accept-racy-units)")
	}
	return list
}
