package main

import (
	"context"
	"net/netip"
	"strings"

	"holdfast/client/kubeconfig"
	"holdfast/client/kubeconfig/edit"
	"holdfast/client/profile"
)

// repair is the server that a cluster's entry has to have.
type repair struct {
	file, cluster string
	want          kubeconfig.Cluster
}

// mendable notes a repair of a cluster's entry that is for the broker's proxy and has
// another server than the profile, or another certificate. It returns true when the entry
// works nevertheless: it has the shared address, which every profile had until each got
// one of its own.
func (i *inspection) mendable(subject string, c *kubeconfig.Cluster, name string, want *kubeconfig.Cluster, p *profile.Profile) (works bool) {
	if !onLoopback(c.Server) || c.Server == want.Server && sameAuthority(c, want) {
		return false
	}
	if want.TLSServerName == "" || c.TLSServerName == want.TLSServerName { // the repair writes no server name
		i.repairs = append(i.repairs, repair{c.Origin, name, *want})
	}
	shared, err := shared(p, i.status.Endpoint)
	if err != nil || c.Server != shared.Server || c.TLSServerName != shared.TLSServerName || !sameAuthority(c, &shared) {
		return false
	}
	i.note(subject, "its server is that of other profiles too: kubectl's caches, by host and port, mix their clusters",
		"holdfast kubeconfig check --fix gives it the profile's own")
	return true
}

// onLoopback reports whether a server is an address of the loopback interface.
func onLoopback(server string) bool {
	at, err := netip.ParseAddrPort(strings.TrimPrefix(server, "https://"))
	return err == nil && at.Addr().IsLoopback()
}

func sameAuthority(a, b *kubeconfig.Cluster) bool {
	one, err1 := a.Authority()
	other, err2 := b.Authority()
	return err1 == nil && err2 == nil && strings.TrimSpace(string(one)) == strings.TrimSpace(string(other))
}

// repair writes the servers, and looks at everything again.
func (a *app) repair(ctx context.Context, o *kubeOptions, repairs []repair) (*inspection, error) {
	servers := map[[2]string]string{}
	for _, r := range repairs {
		key := [2]string{r.file, r.cluster}
		if other := servers[key]; other != "" && other != r.want.Server {
			return nil, failf("give each context a cluster of its own", "contexts of several profiles have the cluster %q of %s", r.cluster, r.file)
		}
		servers[key] = r.want.Server
	}
	for _, r := range repairs {
		err := editFile(ctx, r.file, func(data []byte) ([]byte, error) {
			return edit.SetServer(data, r.cluster, r.want.Server, string(r.want.CertificateAuthorityData))
		})
		if err != nil {
			return nil, err
		}
		a.note("cluster %s in %s: the server is %s", r.cluster, r.file, r.want.Server)
	}
	return a.examineKubeconfig(ctx, o)
}
