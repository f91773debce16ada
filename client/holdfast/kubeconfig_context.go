package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"maps"
	"slices"

	"holdfast/client/kubeconfig"
	"holdfast/client/profile"
	"holdfast/internal/keys"
)

// cluster returns the cluster of the context, and an error when no profile can use it.
func (o *addOptions) cluster(config *kubeconfig.Config) (*kubeconfig.Cluster, error) {
	c := config.Contexts[o.context]
	if c == nil {
		return nil, failf("it has "+cmp.Or(words(slices.Sorted(maps.Keys(config.Contexts))), "none"), "the kubeconfig has no context %q", o.context)
	}
	if record := recordOf(config, o.context); record != nil {
		hint := "add " + record.Context + " instead, or first: holdfast kubeconfig remove " + o.context
		if record.Context == o.context {
			hint = "first: holdfast kubeconfig remove " + o.context
		}
		return nil, failf(hint, "context %q uses a key already", o.context)
	}
	cluster := config.Clusters[c.Cluster]
	if cluster == nil {
		return nil, failf("kubectl config set-cluster makes it", "context %q names the cluster %q, which is not there", o.context, c.Cluster)
	}
	embed := "kubectl config set-cluster " + c.Cluster + " --embed-certs --certificate-authority=FILE"
	switch {
	case cluster.InsecureSkipTLSVerify:
		return nil, failf("get the cluster's CA, then "+embed+" --insecure-skip-tls-verify=false",
			"cluster %q has insecure-skip-tls-verify: an attacker could stand between the key and the cluster", c.Cluster)
	case len(cluster.CertificateAuthorityData) == 0 && cluster.CertificateAuthority == "":
		return nil, failf(embed+" gives it one", "cluster %q has no certificate-authority: the broker trusts no other CA in its place", c.Cluster)
	}
	return cluster, nil
}

// reachable rejects entries that kubectl would not see because an earlier file of
// $KUBECONFIG has entries of the same name.
func (o *addOptions) reachable(config *kubeconfig.Config, file string) error {
	user, cluster, hint := config.Users[o.name], config.Clusters[o.name], "choose another name with --name"
	for _, origin := range []string{cmp.Or(user, &kubeconfig.AuthInfo{}).Origin, cmp.Or(cluster, &kubeconfig.Cluster{}).Origin} {
		if origin != "" && origin != file {
			return failf(hint, "%s has entries named %q already", origin, o.name)
		}
	}
	if o.use && config.CurrentOrigin != "" && config.CurrentOrigin != file {
		return failf("leave --use out, and then: kubectl config use-context "+quoted(o.name),
			"the current context is set in %s, and the context is in %s", config.CurrentOrigin, file)
	}
	return nil
}

// checkKey checks that the key exists. Without an agent it cannot be checked here, and
// the broker reports a missing key.
func (a *app) checkKey(ctx context.Context, name string) error {
	c, err := a.dialFor(ctx, a.timeouts.state)
	if err != nil {
		a.note("the agent could not be asked about key %s: %s", name, explain(err).message)
		return nil
	}
	defer c.Close()
	list, err := c.Keys(ctx, false)
	if err != nil {
		return err
	}
	for _, k := range list {
		if k.Name != name && keys.SetOf(k.Name) != name {
			continue
		}
		if k.Purpose != string(keys.TLSClient) {
			return failf("kubectl signs in with a tls-client key: holdfast key create NAME --purpose tls-client", "key %s is a %s key", name, k.Purpose)
		}
		return nil
	}
	return failf("holdfast key list shows the keys; holdfast enroll kubernetes makes one with a certificate", "there is no key %q that you may see", name)
}

// noteApproval notes when no approver exists for mode certificate: clusters approve by
// themselves only the requests of nodes.
func (a *app) noteApproval(ctx context.Context, p *profile.Profile) {
	if p.Certificate.SignerName != "" {
		return
	}
	c, err := a.dialFor(ctx, a.timeouts.state)
	if err != nil {
		return // checkKey has reported it
	}
	defer c.Close()
	key, err := c.Current(ctx, p.Key)
	if err != nil {
		return // the broker's status reports it
	}
	leaf, err := x509.ParseCertificate(key.Info().Chain[0])
	if err == nil && !profile.Node(leaf.Subject.CommonName) {
		a.note("no cluster approves the certificates of %s by itself, as it does for nodes: use mode proxy, or --signer-name of a signer that has an approver", oneLine(leaf.Subject.CommonName))
	}
}
