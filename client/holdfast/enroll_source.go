package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"holdfast/client/exchange/kubernetes/signin"
	"holdfast/client/kubeconfig"
	"holdfast/client/profile"
)

// enrollSource says which cluster to enroll at, and how to sign in there before
// the key can.
type enrollSource struct {
	kubeconfig, context string
	server, ca          string
	serverName, proxy   string
	tokenFile           string

	user *kubeconfig.AuthInfo // of the context
	exts []kubeconfig.NamedExtension
}

func (s *enrollSource) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "the kubeconfig `FILE` (default $KUBECONFIG, else ~/.kube/config)")
	f.StringVar(&s.context, "context", "", "the kubeconfig's `CONTEXT` whose cluster it is and whose user signs in (default the current one)")
	f.StringVar(&s.tokenFile, "token-file", "", "the `FILE` with a bootstrap token that signs in, or - for stdin, instead of a context")
	f.StringVar(&s.server, "server", "", "with --token-file: the `URL` of the API server (default the profile's)")
	f.StringVar(&s.ca, "ca", "", "with --server: the `FILE` of the certificates, PEM, that must have issued the server's")
	f.StringVar(&s.serverName, "tls-server-name", "", "with --server: the `NAME` in the server's certificate (default its host)")
	f.StringVar(&s.proxy, "proxy-url", "", "with --server: the `URL` of the proxy to the server (http, https or socks5)")
}

func (s *enrollSource) check() error {
	switch {
	case s.tokenFile != "" && (s.kubeconfig != "" || s.context != ""):
		return usagef("leave one of them out", "--token-file and a kubeconfig's context are two ways to sign in")
	case s.server != "" && s.tokenFile == "":
		return usagef("the token's file, or - for stdin", "--server needs --token-file")
	case (s.server != "") != (s.ca != ""):
		return usagef("the CA's certificates say which server is the right one", "--server and --ca go together")
	case s.server == "" && (s.serverName != "" || s.proxy != ""):
		return usagef("", "--tls-server-name and --proxy-url go with --server")
	}
	return nil
}

// prepare returns the profile to write: the one that is there, or a new one with
// the source's cluster. It writes nothing.
func (a *app) prepare(o *enrollOptions, name string) (*profile.Profile, error) {
	p, err := o.profiles.find(name)
	if err != nil {
		return nil, err
	}
	cluster, err := a.cluster(&o.source)
	if err != nil {
		return nil, err
	}
	if p == nil {
		if o.key.Name == "" {
			return nil, usagef("the key to enroll; --create makes it when there is none", "--key is missing, and there is no profile %s to name one", name)
		}
		if cluster == nil {
			return nil, usagef("there is no profile "+name+" to name them", "--server and --ca are missing")
		}
		return &profile.Profile{Name: name, Key: o.key.Name, Modes: []string{profile.ModeProxy}, Cluster: *cluster}, nil
	}
	switch {
	case o.key.Name != "" && o.key.Name != p.Key:
		return nil, usagef("name another profile, or leave --key out", "profile %s is for key %s, not for %s", name, p.Key, o.key.Name)
	case cluster != nil && cluster.Server != p.Cluster.Server:
		// What signs in to one cluster must not be sent to another.
		return nil, usagef("name another profile, or a context of the same cluster", "profile %s is for %s, not for %s", name, p.Cluster.Server, cluster.Server)
	}
	o.key.Name = p.Key
	return p, nil
}

// cluster returns the source's cluster, or nil when it names none.
func (a *app) cluster(s *enrollSource) (*profile.Cluster, error) {
	switch {
	case s.server != "":
		roots, err := a.readCertificates(s.ca)
		if err != nil {
			return nil, err
		}
		return &profile.Cluster{
			Server: s.server, CertificateAuthorityData: string(encodeCertificates(roots)), TLSServerName: s.serverName, ProxyURL: s.proxy,
		}, nil
	case s.tokenFile != "":
		return nil, nil
	}
	return s.fromContext()
}

// fromContext reads the kubeconfig's context: its cluster, and how its user signs
// in.
func (s *enrollSource) fromContext() (*profile.Cluster, error) {
	config, err := kubeconfig.Load(s.kubeconfig)
	if err != nil {
		return nil, &problem{err.Error(), "--kubeconfig names the file; --token-file signs in without one", exitFailed, err}
	}
	if s.context == "" {
		s.context = config.CurrentContext
	}
	entry := config.Contexts[s.context]
	if entry == nil {
		return nil, usagef("kubectl config get-contexts shows them; --context names one", "the kubeconfig has no context %q", s.context)
	}
	cluster, user := config.Clusters[entry.Cluster], config.Users[entry.AuthInfo]
	if cluster == nil || user == nil {
		return nil, &problem{fmt.Sprintf("context %s names a cluster or a user that the kubeconfig does not have", s.context), "kubectl config view shows it", exitFailed, nil}
	}
	if err := s.usable(cluster, user); err != nil {
		return nil, err
	}
	ca, err := cluster.Authority()
	if err != nil {
		return nil, &problem{fmt.Sprintf("context %s: %v", s.context, err), "", exitFailed, err}
	}
	s.user, s.exts = user, cluster.Extensions
	return &profile.Cluster{
		Server: cluster.Server, CertificateAuthorityData: string(ca), TLSServerName: cluster.TLSServerName,
		ProxyURL: cluster.ProxyURL, DisableCompression: cluster.DisableCompression,
	}, nil
}

// usable refuses contexts that cannot bootstrap a key, with the reason.
func (s *enrollSource) usable(cluster *kubeconfig.Cluster, user *kubeconfig.AuthInfo) error {
	refuse := func(hint, fact string) error {
		return &problem{fmt.Sprintf("context %s %s", s.context, fact), hint, exitFailed, nil}
	}
	switch {
	case cluster.InsecureSkipTLSVerify:
		return refuse("put the cluster's CA into the kubeconfig (certificate-authority-data)", "does not verify the server (insecure-skip-tls-verify)")
	case user.AuthProvider != nil:
		return refuse("use the exec plugin that took its place", "signs in by an auth-provider, which client-go no longer has")
	case user.Impersonate != "" || user.ImpersonateUID != "" || len(user.ImpersonateGroups) > 0 || len(user.ImpersonateUserExtra) > 0:
		return refuse("name a context that signs in as itself", "acts for somebody else (as)")
	case user.Exec != nil && len(user.Static()) == 0 && filepath.Base(user.Exec.Command) == ownPlugin:
		return refuse("name a context that signs in by something else, or --token-file FILE; while its certificate is valid, holdfast certificate renew does it", "signs in by holdfast itself")
	case user.Exec == nil && len(user.Static()) == 0:
		return refuse("name a context that signs in", "does not sign in at all")
	}
	return nil
}

// ownPlugin is the program by which kubeconfigs sign in by a key of the agent's.
const ownPlugin = "holdfast-exec-plugin"

// signIn returns what signs in. It stays in memory.
func (a *app) signIn(ctx context.Context, s *enrollSource, cluster *signin.Cluster) (signin.Auth, error) {
	if s.tokenFile != "" {
		token, err := a.read(s.tokenFile)
		if err == nil && len(bytes.TrimSpace(token)) == 0 {
			err = &problem{inputName(s.tokenFile) + " holds no token", "", exitFailed, nil}
		}
		return signin.Auth{Token: string(bytes.TrimSpace(token))}, err
	}
	if len(s.user.Static()) == 0 {
		return a.runPlugin(ctx, s, cluster)
	}
	auth, err := staticAuth(s.user)
	if err != nil {
		err = &problem{fmt.Sprintf("context %s: %v", s.context, err), "", exitFailed, err}
	}
	return auth, err
}

// staticAuth reads what a user signs in with, as client-go does: beside a token
// a certificate is used too.
func staticAuth(u *kubeconfig.AuthInfo) (signin.Auth, error) {
	auth := signin.Auth{Token: u.Token, Username: u.Username, Password: u.Password}
	if u.TokenFile != "" {
		token, err := os.ReadFile(u.TokenFile)
		if err != nil {
			return signin.Auth{}, fmt.Errorf("tokenFile: %w", err)
		}
		auth.Token = string(bytes.TrimSpace(token))
	}
	certificate, err := dataOf(u.ClientCertificateData, u.ClientCertificate)
	if err != nil || len(certificate) == 0 {
		return auth, err
	}
	key, err := dataOf(u.ClientKeyData, u.ClientKey)
	if err != nil {
		return signin.Auth{}, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return signin.Auth{}, fmt.Errorf("client certificate: %w", err)
	}
	auth.Certificate = &pair
	return auth, nil
}

// dataOf returns what stands in the kubeconfig, else what the file holds that it
// names.
func dataOf(data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	return os.ReadFile(file)
}

// runPlugin runs the exec plugin of the source's user with this terminal.
func (a *app) runPlugin(ctx context.Context, s *enrollSource, cluster *signin.Cluster) (signin.Auth, error) {
	x := s.user.Exec
	e := signin.Exec{
		Command: x.Command, Args: x.Args, APIVersion: x.APIVersion, InstallHint: x.InstallHint,
		ProvideClusterInfo: x.ProvideClusterInfo, InteractiveMode: x.InteractiveMode, Config: pluginConfig(s.exts),
	}
	for _, v := range x.Env {
		e.Env = append(e.Env, v.Name+"="+v.Value)
	}
	stdin, _ := a.stdin.(*os.File)
	auth, err := cluster.FromExec(ctx, e, signin.Streams{Stdin: stdin, Stderr: a.stderr, Terminal: isTerminal(a.stdin)})
	var missing *signin.MissingError
	if errors.As(err, &missing) {
		return auth, &problem{err.Error(), printable(missing.Hint), exitFailed, err}
	}
	if err != nil {
		return auth, &problem{fmt.Sprintf("context %s: %v", s.context, err), "does kubectl --context " + s.context + " auth whoami work?", exitFailed, err}
	}
	return auth, nil
}

// pluginConfig is what the kubeconfig says of the cluster to plugins.
func pluginConfig(list []kubeconfig.NamedExtension) json.RawMessage {
	for _, e := range list {
		if e.Name == "client.authentication.k8s.io/exec" {
			if data, err := json.Marshal(e.Extension); err == nil { // one that is no JSON is not sent
				return data
			}
		}
	}
	return nil
}
