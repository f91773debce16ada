package main

import (
	"fmt"

	"holdfast/client/execcredential"
	"holdfast/client/kubeconfig"
	"holdfast/client/profile"
)

// again returns the command that makes the cluster of a context what it has to be. It
// changes no other context.
func (i *inspection) again(context string, p *profile.Profile, u use, want *kubeconfig.Cluster) string {
	c, record := i.config.Contexts[context], recordOf(i.config, context)
	switch {
	case record == nil && i.config.Clusters[c.Cluster].Server == p.Cluster.Server: // other contexts may need it
		return fmt.Sprintf("holdfast kubeconfig add %s --key %s --profile %s makes a context with a cluster of its own", quoted(context), p.Key, p.Name)
	case record == nil:
		return setCluster(c.Cluster, want)
	}
	add := fmt.Sprintf("holdfast kubeconfig add %s --key %s --profile %s --name %s", quoted(record.Context), p.Key, p.Name, quoted(c.AuthInfo))
	if u.mode != profile.ModeProxy {
		add += " --mode " + u.mode
	}
	if version := i.config.Users[c.AuthInfo].Exec.APIVersion; version != execcredential.V1 {
		add += " --api-version " + version
	}
	switch {
	case c.Cluster != c.AuthInfo: // add gives both one name
		return fmt.Sprintf("kubectl config set-context %s --cluster=%s", quoted(context), quoted(c.AuthInfo))
	case record.Cluster == "":
		return add
	case i.sharesUser(context):
		return setCluster(c.Cluster, want)
	}
	return fmt.Sprintf("holdfast kubeconfig remove %s, then %s --replace", quoted(context), add)
}

// setCluster returns the command that corrects a cluster's entry.
func setCluster(name string, want *kubeconfig.Cluster) string {
	command := fmt.Sprintf("kubectl config set-cluster %s --server=%s", quoted(name), want.Server)
	if want.TLSServerName != "" {
		command += " --tls-server-name=" + want.TLSServerName
	}
	return command
}

// sharesUser reports whether another context has the same user.
func (i *inspection) sharesUser(context string) bool {
	for name, other := range i.config.Contexts {
		if name != context && other.AuthInfo == i.config.Contexts[context].AuthInfo {
			return true
		}
	}
	return false
}
