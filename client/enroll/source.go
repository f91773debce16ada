package enroll

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"holdfast/client/exchange/kubernetes/signin"
	"holdfast/client/kubeconfig"
	"holdfast/client/profile"
)

// A Source says which cluster to enroll at, and how to sign in there before the key
// can: by a bootstrap token, or by a context of a kubeconfig.
type Source struct {
	Token   string           // empty: a context signs in
	Cluster *profile.Cluster // with a token; nil: the profile's

	Kubeconfig string         // file; empty: $KUBECONFIG, else ~/.kube/config
	Context    string         // empty: the current one, which is then noted here
	Streams    signin.Streams // for the context's exec plugin

	user *kubeconfig.AuthInfo // of the context
	exts []kubeconfig.NamedExtension
}

// cluster returns the source's cluster, or nil when it names none.
func (s *Source) cluster() (*profile.Cluster, error) {
	if s.Token != "" {
		return s.Cluster, nil
	}
	config, err := kubeconfig.Load(s.Kubeconfig)
	if err != nil {
		return nil, failure(err, "--kubeconfig names the file; --token-file signs in without one")
	}
	if s.Context == "" {
		s.Context = config.CurrentContext
	}
	entry := config.Contexts[s.Context]
	if entry == nil {
		return nil, mistake("kubectl config get-contexts shows them; --context names one", "the kubeconfig has no context %q", s.Context)
	}
	cluster, user := config.Clusters[entry.Cluster], config.Users[entry.AuthInfo]
	if cluster == nil || user == nil {
		return nil, failure(fmt.Errorf("context %s names a cluster or a user that the kubeconfig does not have", s.Context), "kubectl config view shows it")
	}
	if err := s.usable(cluster, user); err != nil {
		return nil, err
	}
	ca, err := cluster.Authority()
	if err != nil {
		return nil, s.failure(err, "")
	}
	s.user, s.exts = user, cluster.Extensions
	return &profile.Cluster{
		Server: cluster.Server, CertificateAuthorityData: string(ca), TLSServerName: cluster.TLSServerName,
		ProxyURL: cluster.ProxyURL, DisableCompression: cluster.DisableCompression,
	}, nil
}

// failure returns err as a failure of the context.
func (s *Source) failure(err error, hint string) error {
	return failure(fmt.Errorf("context %s: %w", s.Context, err), hint)
}

// usable rejects contexts that cannot sign in for a key's first certificate.
func (s *Source) usable(cluster *kubeconfig.Cluster, user *kubeconfig.AuthInfo) error {
	reject := func(hint, fact string) error { return failure(fmt.Errorf("context %s %s", s.Context, fact), hint) }
	switch {
	case cluster.InsecureSkipTLSVerify:
		return reject("put the cluster's CA into the kubeconfig (certificate-authority-data)", "does not verify the server (insecure-skip-tls-verify)")
	case user.AuthProvider != nil:
		return reject("use the exec plugin that replaced it", "signs in by an auth-provider, which client-go no longer has")
	case user.Impersonate != "" || user.ImpersonateUID != "" || len(user.ImpersonateGroups) > 0 || len(user.ImpersonateUserExtra) > 0:
		return reject("name a context that signs in as itself", "impersonates another user (as)")
	case user.Exec != nil && len(user.Static()) == 0 && filepath.Base(user.Exec.Command) == ownPlugin:
		return reject("name another context, or use --token-file FILE; while the certificate is valid, holdfast certificate renew renews it", "signs in by holdfast itself")
	case user.Exec == nil && len(user.Static()) == 0:
		return reject("name a context that signs in", "has no credentials")
	}
	return nil
}

// ownPlugin is the program by which kubeconfigs sign in with the agent's keys.
const ownPlugin = "holdfast-exec-plugin"

// signIn returns the credential that signs in. It stays in memory.
func (s *Source) signIn(ctx context.Context, cluster *signin.Cluster) (signin.Auth, error) {
	if s.Token != "" {
		return signin.Auth{Token: s.Token}, nil
	}
	if len(s.user.Static()) == 0 {
		return s.runPlugin(ctx, cluster)
	}
	auth, err := staticAuth(s.user)
	if err != nil {
		err = s.failure(err, "")
	}
	return auth, err
}

// staticAuth reads a user's credentials as client-go does: a certificate is used
// beside a token.
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

// dataOf returns the data in the kubeconfig, else those of the file that it names.
func dataOf(data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	return os.ReadFile(file)
}

// runPlugin runs the exec plugin of the context's user.
func (s *Source) runPlugin(ctx context.Context, cluster *signin.Cluster) (signin.Auth, error) {
	x := s.user.Exec
	e := signin.Exec{
		Command: x.Command, Args: x.Args, APIVersion: x.APIVersion, InstallHint: x.InstallHint,
		ProvideClusterInfo: x.ProvideClusterInfo, InteractiveMode: x.InteractiveMode, Config: pluginConfig(s.exts),
	}
	for _, v := range x.Env {
		e.Env = append(e.Env, v.Name+"="+v.Value)
	}
	auth, err := cluster.FromExec(ctx, e, s.Streams)
	var missing *signin.MissingError
	switch {
	case errors.As(err, &missing):
		err = failure(err, missing.Hint)
	case err != nil:
		err = s.failure(err, "does kubectl --context "+s.Context+" auth whoami work?")
	}
	return auth, err
}

// pluginConfig returns what the kubeconfig tells plugins about the cluster.
func pluginConfig(list []kubeconfig.NamedExtension) json.RawMessage {
	for _, e := range list {
		if e.Name == "client.authentication.k8s.io/exec" {
			if data, err := json.Marshal(e.Extension); err == nil { // an extension that is no JSON is not sent
				return data
			}
		}
	}
	return nil
}
