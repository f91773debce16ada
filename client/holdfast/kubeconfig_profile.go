package main

import (
	"cmp"
	"slices"
	"strconv"

	"holdfast/client/exchange/kubernetes/signin"
	"holdfast/client/kubeconfig"
	"holdfast/client/profile"
)

// newProfile returns the profile as it is to be, and the one that is there now.
// Other modes and the renewal of an existing profile stay.
func (o *addOptions) newProfile(cluster *kubeconfig.Cluster) (p, known *profile.Profile, err error) {
	authority, err := cluster.Authority()
	if err != nil {
		return nil, nil, err
	}
	profiles, faults, err := o.profiles()
	if err != nil {
		return nil, nil, err
	}
	if fault := faults[o.profile]; fault != nil {
		return nil, nil, failf("correct or remove the profile, or choose another name with --profile", "%w", fault)
	}
	p = &profile.Profile{Name: o.profile}
	if known = profiles[o.profile]; known != nil {
		if known.Cluster.Server != cluster.Server {
			return nil, nil, failf("choose another name with --profile", "profile %s is for another server, %s", o.profile, known.Cluster.Server)
		}
		*p = *known
		p.Modes = slices.Clone(known.Modes)
	}
	p.Key = o.key
	if !slices.Contains(p.Modes, o.mode) {
		p.Modes = append(p.Modes, o.mode)
	}
	p.Cluster = profile.Cluster{
		Server: cluster.Server, CertificateAuthorityData: string(authority), TLSServerName: cluster.TLSServerName,
		ProxyURL: cluster.ProxyURL, DisableCompression: cluster.DisableCompression,
	}
	if p.Cluster.ProxyURL == "" {
		if p.Cluster.ProxyURL, err = proxyOf(known, cluster.Server); err != nil {
			return nil, nil, err
		}
	}
	if err := o.fillIn(p); err != nil {
		return nil, nil, err
	}
	if err := p.Check(); err != nil {
		return nil, nil, failf("the first word of each line is the profile's", "%w", err)
	}
	return p, known, nil
}

// proxyOf returns the proxy to a server whose kubeconfig names none: the environment's,
// which the broker does not have, else the existing profile's.
func proxyOf(known *profile.Profile, server string) (string, error) {
	proxy, err := signin.ProxyFor(server)
	if proxy == "" && err == nil && known != nil {
		proxy = known.Cluster.ProxyURL
	}
	return proxy, err
}

// fillIn applies the options of the mode.
func (o *addOptions) fillIn(p *profile.Profile) error {
	switch o.mode {
	case profile.ModeToken:
		p.Token.Namespace, p.Token.ServiceAccount = cmp.Or(o.namespace, p.Token.Namespace), cmp.Or(o.serviceAccount, p.Token.ServiceAccount)
		if p.Token.Namespace == "" || p.Token.ServiceAccount == "" {
			return usagef("the token is that of a service account", "mode token needs --namespace and --service-account")
		}
		if len(o.audiences) > 0 {
			p.Token.Audiences = o.audiences
		}
		p.Token.Lifetime = cmp.Or(o.lifetime, p.Token.Lifetime)
	case profile.ModeCertificate:
		p.Certificate.SignerName = cmp.Or(o.signer, p.Certificate.SignerName)
		p.Certificate.Lifetime = cmp.Or(o.lifetime, p.Certificate.Lifetime)
	}
	if o.poolGiven {
		p.Proxy.NoPool = o.noPool
	}
	if o.port == autoPort && p.Proxy.Port == 0 {
		port, err := freePort()
		if err != nil {
			return err
		}
		p.Proxy.Port = port
	} else if o.port != "" && o.port != autoPort {
		p.Proxy.Port, _ = strconv.Atoi(o.port) // checked with the options
	}
	return nil
}
