package main

import (
	"fmt"
	"net"
	"strconv"

	"holdfast/client/kubeconfig"
	"holdfast/client/kubeconfig/edit"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
)

// freePort returns a port that no process listens on now. A process that takes it
// before the broker does cannot present the certificate that the kubeconfig pins.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// entry returns the entries for the kubeconfig. The new user impersonates the same
// user as the old one.
func (o *addOptions) entry(config *kubeconfig.Config, p *profile.Profile, status brokerwire.GetStatusReply) (*edit.Entry, error) {
	c := config.Contexts[o.context]
	e := &edit.Entry{
		Name: o.name, Profile: p.Name, Context: o.context, Namespace: c.Namespace, Replace: o.replace, Use: o.use,
		User: kubeconfig.AuthInfo{Exec: plugin(p.Name, o.mode, o.apiVersion)},
	}
	if old := config.Users[c.AuthInfo]; old != nil {
		e.User.Impersonate, e.User.ImpersonateUID = old.Impersonate, old.ImpersonateUID
		e.User.ImpersonateGroups, e.User.ImpersonateUserExtra = old.ImpersonateGroups, old.ImpersonateUserExtra
	}
	if o.mode != profile.ModeProxy {
		e.Cluster = direct(p)
		return e, nil
	}
	var err error
	e.Cluster, err = loopback(p, status)
	return e, err
}

// direct returns the cluster entry of the API server itself.
func direct(p *profile.Profile) kubeconfig.Cluster {
	return kubeconfig.Cluster{
		Server: p.Cluster.Server, TLSServerName: p.Cluster.TLSServerName, CertificateAuthorityData: kubeconfig.Data(p.Cluster.CertificateAuthorityData),
		ProxyURL: p.Cluster.ProxyURL, DisableCompression: p.Cluster.DisableCompression,
	}
}

// loopback returns the cluster entry of the broker's proxy: where the broker serves the
// profile, which is an address of its own. A broker that does not know the profile yet, or
// that has no such addresses, serves it at the shared one.
func loopback(p *profile.Profile, status brokerwire.GetStatusReply) (kubeconfig.Cluster, error) {
	for _, known := range status.Profiles {
		if known.Name == p.Name && known.Certificate != "" && p.Proxy.Port == 0 {
			return kubeconfig.Cluster{
				Server: "https://" + known.Address, TLSServerName: known.TLSServerName,
				CertificateAuthorityData: kubeconfig.Data(known.Certificate), DisableCompression: p.Cluster.DisableCompression,
			}, nil
		}
	}
	return shared(p, status.Endpoint)
}

// shared returns the cluster entry with the shared port and the profile's name, or with
// the profile's own port.
func shared(p *profile.Profile, endpoint brokerwire.Endpoint) (kubeconfig.Cluster, error) {
	host, port, err := net.SplitHostPort(endpoint.Address)
	if err != nil || endpoint.Certificate == "" {
		return kubeconfig.Cluster{}, failf("holdfast doctor looks closer", "the broker does not say where its proxy listens")
	}
	c := kubeconfig.Cluster{
		Server: "https://" + net.JoinHostPort(host, port), TLSServerName: p.ServerName(),
		CertificateAuthorityData: kubeconfig.Data(endpoint.Certificate), DisableCompression: p.Cluster.DisableCompression,
	}
	if p.Proxy.Port != 0 {
		c.Server, c.TLSServerName = "https://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Proxy.Port)), ""
	}
	return c, nil
}
