package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/client/execcredential"
	"holdfast/client/kubeconfig"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
)

func (a *app) kubeconfigCheck() *cobra.Command {
	var o kubeOptions
	var fix bool
	cmd := &cobra.Command{
		Use: "check", Short: "find out why kubectl would not sign in with a key",
		Long: `Checks every user in the kubeconfig that runs holdfast-exec-plugin, the contexts that
use it, and the broker. For each fault it prints the next step.
The exit code is 0 when nothing is wrong and 1 when something is.

With --fix it first writes the server at which the broker serves each profile, and
its certificate, into the clusters of contexts in mode proxy that have others. The
rest of the files stays as it is, byte for byte.

It cannot see one case: kubectl does not run the plugin when it is called with
--token, --username or --client-certificate, and does not report that.`,
		Example: indent("holdfast kubeconfig check"),
		Args:    arguments(),
		RunE: a.action(func(ctx context.Context, _ []string) error {
			examined, err := a.examineKubeconfig(ctx, &o)
			if err == nil && fix && len(examined.repairs) > 0 {
				examined, err = a.repair(ctx, &o, examined.repairs)
			}
			if err != nil {
				return err
			}
			found := examined.findings
			if err := a.printFindings(found); err != nil || found.count(stateBad) == 0 {
				return err
			}
			return answered{exitFailed}
		}),
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&fix, "fix", false, "first correct the server and the certificate of clusters in mode proxy")
	a.jsonFlag(cmd)
	return cmd
}

// inspection holds the subjects and the findings of `kubeconfig check`.
type inspection struct {
	findings
	config   *kubeconfig.Config
	profiles map[string]*profile.Profile
	faults   map[string]error
	status   *brokerwire.GetStatusReply // nil when no broker answers
	repairs  []repair
}

func (a *app) examineKubeconfig(ctx context.Context, o *kubeOptions) (*inspection, error) {
	config, err := o.load()
	if err != nil {
		return nil, err
	}
	profiles, faults, err := o.profiles()
	if err != nil {
		return nil, err
	}
	i := &inspection{config: config, profiles: profiles, faults: faults}
	status, err := a.brokerStatus(ctx, o)
	if err != nil {
		i.failed("broker", err)
	} else {
		i.status = &status
		i.ok("broker", "%s in %s mode, proxy at %s", status.Version, status.Mode, status.Endpoint.Address)
	}
	seen := false
	for _, name := range slices.Sorted(maps.Keys(config.Users)) {
		if u, uses := useOf(config.Users[name]); uses {
			seen = true
			i.user(name, u)
		}
	}
	if !seen {
		i.note("users", "no user runs "+execPlugin, "holdfast kubeconfig add CONTEXT --key NAME makes one")
	}
	return i, nil
}

// user checks a user and the contexts that it is in.
func (i *inspection) user(name string, u use) {
	before := i.count(stateBad)
	entry, subject := i.config.Users[name], "user "+name
	i.run(subject, entry, u)
	p := i.profile(subject, entry, u)
	for _, context := range slices.Sorted(maps.Keys(i.config.Contexts)) {
		if c := i.config.Contexts[context]; c.AuthInfo == name {
			i.cluster(context, i.config.Clusters[c.Cluster], c.Cluster, entry.Exec, u, p)
		}
	}
	if i.count(stateBad) == before {
		i.ok(subject, "profile %s, mode %s", u.profile, u.mode)
	}
}

// run checks whether and how client-go would run the plugin.
func (i *inspection) run(subject string, entry *kubeconfig.AuthInfo, u use) {
	e := entry.Exec
	if static := entry.Static(); len(static) > 0 {
		i.bad(subject, "the plugin is not run: kubectl takes the user's "+strings.Join(static, ", ")+" instead, and does not say so",
			"take them out of the user, or use one that holdfast kubeconfig add writes; the same goes for kubectl --token")
	}
	if entry.AuthProvider != nil {
		i.bad(subject, "it has an auth-provider beside exec, and kubectl refuses both together", "take the auth-provider out")
	}
	if u.shell {
		i.bad(subject, fmt.Sprintf("the plugin is run by %s: its ticket counts for that process and not for kubectl", e.Command), "command: "+execPlugin)
	} else if _, err := exec.LookPath(e.Command); err != nil && !errors.Is(err, exec.ErrDot) {
		i.bad(subject, fmt.Sprintf("the plugin cannot be run: %v", err), "install it, or put its directory into PATH")
	}
	if filepath.Base(e.Command) == execPlugin && e.Command != execPlugin {
		i.note(subject, "command has a path, so that kubectl shows no install hint where it is missing", "command: "+execPlugin)
	}
	switch {
	case e.APIVersion != execcredential.V1 && e.APIVersion != execcredential.V1Beta1:
		i.bad(subject, fmt.Sprintf("kubectl does not know the apiVersion %q of exec", e.APIVersion), "apiVersion: "+execcredential.V1)
	case e.APIVersion == execcredential.V1 && e.InteractiveMode == "":
		i.bad(subject, "interactiveMode is missing, and kubectl refuses "+execcredential.V1+" without it", "interactiveMode: Never")
	case e.InteractiveMode == "Always":
		i.bad(subject, "interactiveMode Always fails without a terminal, and the plugin reads none", "interactiveMode: Never")
	}
}

// profile checks the profile, and returns it when it can be used.
func (i *inspection) profile(subject string, entry *kubeconfig.AuthInfo, u use) *profile.Profile {
	p, fault := i.profiles[u.profile], i.faults[u.profile]
	switch {
	case u.profile == "":
		i.note(subject, "its arguments name no profile: the cluster's extension has to", "--profile NAME among args says it")
		return nil
	case fault != nil:
		i.bad(subject, strings.ReplaceAll(fault.Error(), "\n", "; "), "correct the profile")
		return nil
	case p == nil:
		i.bad(subject, "there is no profile "+u.profile, "holdfast kubeconfig add CONTEXT --key NAME --profile "+u.profile+" makes it")
		return nil
	}
	if !slices.Contains(p.Modes, u.mode) {
		i.bad(subject, fmt.Sprintf("profile %s does not allow mode %s; it allows %s", p.Name, u.mode, words(p.Modes)), "holdfast kubeconfig add with --mode "+u.mode+" adds it")
	}
	if i.status != nil {
		if fault, hint := brokerFault(*i.status, p.Name); fault != "" {
			i.bad(subject, fault, hint)
		}
	}
	return p
}

// cluster checks the cluster of a context.
func (i *inspection) cluster(context string, c *kubeconfig.Cluster, name string, e *kubeconfig.ExecConfig, u use, p *profile.Profile) {
	subject := "context " + context
	if c == nil {
		i.bad(subject, fmt.Sprintf("its cluster %q is not there", name), "kubectl config set-context chooses another")
		return
	}
	if c.InsecureSkipTLSVerify {
		i.bad(subject, "insecure-skip-tls-verify: kubectl would give the credential to any server that answers", "kubectl config set-cluster "+name+" --insecure-skip-tls-verify=false")
	}
	if u.mode != profile.ModeProxy && !e.ProvideClusterInfo {
		i.bad(subject, fmt.Sprintf("provideClusterInfo is not true: in mode %s the broker answers only when it knows for which server", u.mode), "provideClusterInfo: true")
	}
	if p == nil {
		return
	}
	want := direct(p)
	if u.mode == profile.ModeProxy {
		if i.status == nil {
			return
		}
		var err error
		if want, err = loopback(p, *i.status); err != nil {
			i.failed(subject, err)
			return
		}
		// add gives the user and the cluster one name: others' clusters stay as they are.
		if own := name == i.config.Contexts[context].AuthInfo && c.Server != p.Cluster.Server; own && i.mendable(subject, c, name, &want, p) {
			return
		}
	}
	i.compare(subject, c, &want, i.again(context, p, u, &want))
}

// compare checks that a cluster's entry is the one that add would write now.
func (i *inspection) compare(subject string, c, want *kubeconfig.Cluster, hint string) {
	if c.Server != want.Server {
		i.bad(subject, fmt.Sprintf("its server is %s and has to be %s", c.Server, want.Server), hint)
	}
	// A client that checks the address needs no name, at an address or a port of its own.
	if c.TLSServerName != want.TLSServerName && (want.TLSServerName != "" || c.Server != want.Server) {
		i.bad(subject, fmt.Sprintf("its tls-server-name is %q and has to be %q", c.TLSServerName, want.TLSServerName), hint)
	}
	authority, err := c.Authority()
	switch {
	case err != nil:
		i.bad(subject, err.Error(), hint)
	case strings.TrimSpace(string(authority)) != strings.TrimSpace(string(want.CertificateAuthorityData)):
		i.bad(subject, "its certificate-authority is not the one that the broker presents", hint)
	}
	if c.ProxyURL != want.ProxyURL {
		i.bad(subject, "its proxy-url is not the profile's", hint)
	}
}
