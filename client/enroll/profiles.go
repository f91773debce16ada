package enroll

import (
	"slices"

	"holdfast/client/exchange/kubernetes/signin"
	"holdfast/client/profile"
)

// Find returns the profile of a name in a directory, or nil when there is none.
func Find(directory, name string) (*profile.Profile, error) {
	all, faults, err := profile.Load(directory)
	if err == nil {
		err = faults[name]
	}
	if err != nil {
		return nil, failure(err, "correct or remove the file")
	}
	return all[name], nil
}

// ClusterOf returns a profile's cluster as transports take it.
func ClusterOf(p *profile.Profile) *signin.Cluster {
	return &signin.Cluster{
		Server: p.Cluster.Server, CertificateAuthorityData: []byte(p.Cluster.CertificateAuthorityData),
		TLSServerName: p.Cluster.TLSServerName, ProxyURL: p.Cluster.ProxyURL, DisableCompression: p.Cluster.DisableCompression,
	}
}

// ProfilesOf returns the names of the profiles whose keys are of a set, sorted.
func ProfilesOf(all map[string]*profile.Profile, set string) []string {
	var names []string
	for name, p := range all {
		if p.Key == set {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
