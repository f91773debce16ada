package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/agent/keys"
	"holdfast/client/broker/wire"
	"holdfast/client/kubeconfig"
	"holdfast/client/kubeconfig/edit"
	"holdfast/client/profile"
)

// addOptions is what `kubeconfig add` was given.
type addOptions struct {
	kubeOptions
	context       string
	key           string
	profile, name string
	mode          string
	replace, use  bool
	port          string // --dedicated-port: empty for none, auto, or a number

	namespace, serviceAccount string
	audiences                 []string
	signer                    string
	lifetime                  time.Duration
}

// autoPort has --dedicated-port pick a port.
const autoPort = "auto"

func modes() []string {
	return []string{profile.ModeProxy, profile.ModeCertificate, profile.ModeToken}
}

func (a *app) kubeconfigAdd() *cobra.Command {
	var o addOptions
	cmd := &cobra.Command{
		Use: "add CONTEXT --key NAME", Short: "sign in to the cluster of a context with a key",
		Long: `Writes a profile for the broker from the cluster of an existing context, and a
cluster, a user and a context that use it into the kubeconfig. The rest of the file
stays as it is, byte for byte, and so does the old context unless --replace has it
use the key. holdfast kubeconfig remove takes everything back.

Modes: proxy has kubectl talk to the broker on this machine, which signs in to the
cluster with the key. token and certificate have kubectl talk to the cluster itself,
with a token of a service account or a certificate that live for minutes.

kubectl does not run a plugin for a user who also has a token, a password or a
client certificate, nor with its options --token and --username: add writes a user
of its own, with nothing else in it.`,
		Example: indent("holdfast kubeconfig add kind-dev --key alice --use"),
		Args:    arguments("CONTEXT"), ValidArgsFunction: completing(contextNames).first(&o.kubeOptions),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			o.context = args[0]
			return o.check(cmd)
		},
		RunE: a.action(func(ctx context.Context, _ []string) error { return a.addContext(ctx, &o) }),
	}
	o.register(cmd)
	f := cmd.Flags()
	f.StringVar(&o.key, "key", "", "the `NAME` of the key, or of the set of keys")
	f.StringVar(&o.profile, "profile", "", "the `NAME` of the broker's profile (default from the context's)")
	f.StringVar(&o.mode, "mode", profile.ModeProxy, "the `MODE`: "+strings.Join(modes(), ", "))
	f.StringVar(&o.name, "name", "", "the `NAME` of the new entries (default CONTEXT-holdfast)")
	f.BoolVar(&o.replace, "replace", false, "have CONTEXT itself use the key, rather than a new context")
	f.BoolVar(&o.use, "use", false, "make it the current context")
	f.StringVar(&o.port, "dedicated-port", "", "give the profile a `PORT` of its own on this machine, for clients that ignore tls-server-name")
	f.Lookup("dedicated-port").NoOptDefVal = autoPort
	f.StringVar(&o.namespace, "namespace", "", "mode token: the service account's `NAMESPACE`")
	f.StringVar(&o.serviceAccount, "service-account", "", "mode token: the `NAME` of the service account")
	f.StringArrayVar(&o.audiences, "audience", nil, "mode token: an `AUDIENCE`; may be given several times (default the API server's)")
	f.StringVar(&o.signer, "signer-name", "", "mode certificate: the `SIGNER` that approves such certificates")
	f.DurationVar(&o.lifetime, "lifetime", 0, "modes token and certificate: the `DURATION` to ask for, such as 15m")
	noDefault(cmd, "lifetime")
	complete(cmd, "mode", modes())
	completeOption(cmd, "key", a.completeKeys)
	completeOption(cmd, "profile", completing(profileNames).first(&o.kubeOptions))
	return cmd
}

// check finds mistakes that need no file.
func (o *addOptions) check(cmd *cobra.Command) error {
	if o.key == "" {
		return usagef("holdfast key list shows the keys", "--key is missing")
	}
	if err := keys.CheckName(o.key); err != nil {
		return usageError(err)
	}
	if !slices.Contains(modes(), o.mode) {
		return usagef("one of "+words(modes()), "there is no mode %q", o.mode)
	}
	for option, mode := range map[string]string{
		"namespace": profile.ModeToken, "service-account": profile.ModeToken, "audience": profile.ModeToken,
		"signer-name": profile.ModeCertificate, "dedicated-port": profile.ModeProxy,
	} {
		if cmd.Flags().Changed(option) && o.mode != mode {
			return usagef("add --mode "+mode+", or leave --"+option+" out", "--%s is for mode %s", option, mode)
		}
	}
	if cmd.Flags().Changed("lifetime") && o.mode == profile.ModeProxy {
		return usagef("add --mode token or --mode certificate", "--lifetime is for what is minted; mode proxy mints nothing")
	}
	if n, err := strconv.Atoi(o.port); o.port != "" && o.port != autoPort && (err != nil || n < 1 || n > 65535) {
		return usagef("--dedicated-port alone picks one", "--dedicated-port wants a port from 1 to 65535, not %q", o.port)
	}
	o.name = cmp.Or(o.name, o.context+"-holdfast")
	return o.nameProfile()
}

// foreign is what a profile's name cannot hold.
var foreign = regexp.MustCompile(`[^a-z0-9]+`)

// nameProfile names the profile after the context where no name was given.
func (o *addOptions) nameProfile() error {
	if o.profile != "" {
		if err := profile.CheckName(o.profile); err != nil {
			return usagef("", "--profile: %v", err)
		}
		return nil
	}
	name := strings.Trim(foreign.ReplaceAllString(strings.ToLower(o.context), "-"), "-")
	o.profile = strings.TrimRight(name[:min(len(name), profile.MaxName)], "-")
	if profile.CheckName(o.profile) != nil {
		return usagef("--profile names it", "no profile can be named after the context %q", o.context)
	}
	return nil
}

func (a *app) addContext(ctx context.Context, o *addOptions) error {
	config, err := o.load()
	if err != nil {
		return err
	}
	cluster, err := o.cluster(config)
	if err != nil {
		return err
	}
	if err := a.checkKey(ctx, o.key); err != nil {
		return err
	}
	status, err := a.brokerStatus(ctx, &o.kubeOptions)
	if err != nil && o.mode == profile.ModeProxy { // the kubeconfig says where the broker listens
		return err
	}
	o.system = o.system || status.Mode == "system"
	p, known, err := o.newProfile(cluster)
	if err != nil {
		return err
	}
	entry, err := o.entry(config, p, status.Endpoint)
	if err != nil {
		return err
	}
	file := config.Contexts[o.context].Origin
	if err := o.reachable(config, file); err != nil {
		return err
	}
	if err := o.writeAll(ctx, file, p, known, entry); err != nil {
		return err
	}
	return a.added(ctx, o, file, p)
}

// cluster returns the cluster of the context, when a profile can be made of it.
func (o *addOptions) cluster(config *kubeconfig.Config) (*kubeconfig.Cluster, error) {
	c := config.Contexts[o.context]
	if c == nil {
		return nil, &problem{
			fmt.Sprintf("the kubeconfig has no context %q", o.context),
			"it has " + cmp.Or(words(slices.Sorted(maps.Keys(config.Contexts))), "none"), exitFailed, nil,
		}
	}
	if record := recordOf(config, o.context); record != nil {
		hint := "add " + record.Context + " instead, or first: holdfast kubeconfig remove " + o.context
		if record.Context == o.context {
			hint = "first: holdfast kubeconfig remove " + o.context
		}
		return nil, &problem{fmt.Sprintf("context %q uses a key already", o.context), hint, exitFailed, nil}
	}
	cluster := config.Clusters[c.Cluster]
	if cluster == nil {
		return nil, &problem{fmt.Sprintf("context %q names the cluster %q, which is not there", o.context, c.Cluster), "kubectl config set-cluster makes it", exitFailed, nil}
	}
	embed := "kubectl config set-cluster " + c.Cluster + " --embed-certs --certificate-authority=FILE"
	switch {
	case cluster.InsecureSkipTLSVerify:
		return nil, &problem{
			fmt.Sprintf("cluster %q has insecure-skip-tls-verify: anybody could stand between the key and the cluster", c.Cluster),
			"get the cluster's CA, then " + embed + " --insecure-skip-tls-verify=false", exitFailed, nil,
		}
	case len(cluster.CertificateAuthorityData) == 0 && cluster.CertificateAuthority == "":
		return nil, &problem{
			fmt.Sprintf("cluster %q has no certificate-authority: the broker trusts no other CA in its place", c.Cluster), embed + " gives it one", exitFailed, nil,
		}
	}
	return cluster, nil
}

// reachable refuses entries that kubectl would not see, because an earlier file
// of $KUBECONFIG says something else.
func (o *addOptions) reachable(config *kubeconfig.Config, file string) error {
	user, cluster, hint := config.Users[o.name], config.Clusters[o.name], "choose another name with --name"
	for _, origin := range []string{cmp.Or(user, &kubeconfig.AuthInfo{}).Origin, cmp.Or(cluster, &kubeconfig.Cluster{}).Origin} {
		if origin != "" && origin != file {
			return &problem{fmt.Sprintf("%s has entries named %q already", origin, o.name), hint, exitFailed, nil}
		}
	}
	if o.use && config.CurrentOrigin != "" && config.CurrentOrigin != file {
		return &problem{
			fmt.Sprintf("the current context is set in %s, and the context is in %s", config.CurrentOrigin, file),
			"leave --use out, and then: kubectl config use-context " + quoted(o.name), exitFailed, nil,
		}
	}
	return nil
}

// checkKey looks whether there is such a key. Without an agent nobody knows, and
// the broker will say so.
func (a *app) checkKey(ctx context.Context, name string) error {
	c, err := a.dialFor(ctx, a.patience.state)
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
			return &problem{fmt.Sprintf("key %s is a %s key", name, k.Purpose), "kubectl signs in with a tls-client key: holdfast key create NAME --purpose tls-client", exitFailed, nil}
		}
		return nil
	}
	return &problem{fmt.Sprintf("there is no key %q that you may see", name), "holdfast key list shows the keys; holdfast enroll kubernetes makes one with a certificate", exitFailed, nil}
}

// newProfile returns the profile as it is to be, and the one that is there now.
// What an existing one says of other modes and of renewal stays.
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
		return nil, nil, &problem{fault.Error(), "mend or remove the profile, or choose another name with --profile", exitFailed, fault}
	}
	p = &profile.Profile{Name: o.profile}
	if known = profiles[o.profile]; known != nil {
		if known.Cluster.Server != cluster.Server {
			return nil, nil, &problem{
				fmt.Sprintf("profile %s is for another server, %s", o.profile, known.Cluster.Server), "choose another name with --profile", exitFailed, nil,
			}
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
	if err := o.fillIn(p); err != nil {
		return nil, nil, err
	}
	if err := p.Check(); err != nil {
		return nil, nil, &problem{err.Error(), "the first word of each line is the profile's", exitFailed, err}
	}
	return p, known, nil
}

// fillIn sets what the mode's options say.
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

// freePort returns a port that nobody listens on now. Whoever takes it before
// the broker does is found out by the certificate that the kubeconfig pins.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// entry returns what goes into the kubeconfig. Whom the old user acts as, the new
// one acts as too.
func (o *addOptions) entry(config *kubeconfig.Config, p *profile.Profile, endpoint wire.Endpoint) (*edit.Entry, error) {
	c := config.Contexts[o.context]
	e := &edit.Entry{
		Name: o.name, Profile: p.Name, Context: o.context, Namespace: c.Namespace, Replace: o.replace, Use: o.use,
		User: kubeconfig.AuthInfo{Exec: plugin(p.Name, o.mode)},
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
	e.Cluster, err = loopback(p, endpoint)
	return e, err
}

// direct is the cluster entry of the API server itself.
func direct(p *profile.Profile) kubeconfig.Cluster {
	return kubeconfig.Cluster{
		Server: p.Cluster.Server, TLSServerName: p.Cluster.TLSServerName, CertificateAuthorityData: kubeconfig.Data(p.Cluster.CertificateAuthorityData),
		ProxyURL: p.Cluster.ProxyURL, DisableCompression: p.Cluster.DisableCompression,
	}
}

// loopback is the cluster entry of the broker's proxy: by the profile's name on
// the port of all, or by a port of its own.
func loopback(p *profile.Profile, endpoint wire.Endpoint) (kubeconfig.Cluster, error) {
	host, port, err := net.SplitHostPort(endpoint.Address)
	if err != nil || endpoint.Certificate == "" {
		return kubeconfig.Cluster{}, &problem{"the broker does not say where its proxy listens", "holdfast doctor looks closer", exitFailed, err}
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
