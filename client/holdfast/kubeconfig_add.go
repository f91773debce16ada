package main

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client/profile"
	"holdfast/internal/keys"
)

// addOptions holds the options of `kubeconfig add`.
type addOptions struct {
	kubeOptions
	context       string
	key           string
	profile, name string
	mode          string
	preset        string
	apiVersion    string // of the exec entry; the whole name once checked
	replace, use  bool
	port          string // --dedicated-port: empty for none, auto, or a number
	noPool        bool
	poolGiven     bool // --no-pool is on the command line

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
stays as it is, byte for byte, and so does the old context unless --replace makes it
use the key. holdfast kubeconfig remove undoes everything.

Modes: proxy has kubectl talk to the broker on this machine, which signs in to the
cluster with the key. token and certificate have kubectl talk to the cluster itself,
with a token of a service account or a certificate that live for minutes.

--preset other-languages is for programs whose client library is not client-go, such
as those in Python, Java, JavaScript and Ruby. Some of these libraries do not tell the
plugin which version of its protocol they speak, or know only v1beta1.

kubectl does not run a plugin for a user who also has a token, a password or a
client certificate, nor with its options --token and --username: add writes a user
of its own, with nothing else in it.`,
		Example: indent("holdfast kubeconfig add kind-dev --key alice --use"),
		Args:    o.arguments, ValidArgsFunction: completing(contextNames).first(&o.kubeOptions),
		PreRunE: func(cmd *cobra.Command, _ []string) error { return o.check(cmd) },
		RunE:    a.action(func(ctx context.Context, _ []string) error { return a.addContext(ctx, &o) }),
	}
	o.register(cmd)
	f := cmd.Flags()
	f.StringVar(&o.key, "key", "", "the `NAME` of the key, or of the set of keys")
	f.StringVar(&o.profile, "profile", "", "the `NAME` of the broker's profile (default from the context's)")
	f.StringVar(&o.mode, "mode", profile.ModeProxy, "the `MODE`: "+strings.Join(modes(), ", "))
	f.StringVar(&o.preset, "preset", presetKubectl, "the `CLIENTS` that the context is for: "+strings.Join(presets(), ", "))
	f.StringVar(&o.apiVersion, "api-version", "v1", "the `VERSION` of the exec entry: v1 or v1beta1")
	f.StringVar(&o.name, "name", "", "the `NAME` of the new entries (default CONTEXT-holdfast)")
	f.BoolVar(&o.replace, "replace", false, "have CONTEXT itself use the key, rather than a new context")
	f.BoolVar(&o.use, "use", false, "make it the current context")
	f.StringVar(&o.port, "dedicated-port", "", "give the profile a `PORT` of its own on 127.0.0.1; not needed, because each profile has an address of its own")
	f.Lookup("dedicated-port").NoOptDefVal = autoPort
	f.BoolVar(&o.noPool, "no-pool", false, "mode proxy: sign in again, with a signature, for each request")
	f.StringVar(&o.namespace, "namespace", "", "mode token: the service account's `NAMESPACE`")
	f.StringVar(&o.serviceAccount, "service-account", "", "mode token: the `NAME` of the service account")
	f.StringArrayVar(&o.audiences, "audience", nil, "mode token: an `AUDIENCE`; may be given several times (default the API server's)")
	f.StringVar(&o.signer, "signer-name", "", "mode certificate: the `SIGNER` that approves such certificates")
	f.DurationVar(&o.lifetime, "lifetime", 0, "modes token and certificate: the `DURATION` to ask for, such as 15m")
	noDefault(cmd, "lifetime")
	complete(cmd, "mode", modes())
	complete(cmd, "preset", presets())
	complete(cmd, "api-version", []string{"v1", "v1beta1"})
	completeOption(cmd, "key", a.completeKeys)
	completeOption(cmd, "profile", completing(profileNames).first(&o.kubeOptions))
	a.jsonFlag(cmd)
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
		return usagef(didYouMean(o.mode, texts(modes()), "one of "+words(modes())), "there is no mode %q", o.mode)
	}
	for option, mode := range map[string]string{
		"namespace": profile.ModeToken, "service-account": profile.ModeToken, "audience": profile.ModeToken,
		"signer-name": profile.ModeCertificate, "dedicated-port": profile.ModeProxy, "no-pool": profile.ModeProxy,
	} {
		if cmd.Flags().Changed(option) && o.mode != mode {
			return usagef("add --mode "+mode+", or leave --"+option+" out", "--%s is for mode %s", option, mode)
		}
	}
	if cmd.Flags().Changed("lifetime") && o.mode == profile.ModeProxy {
		return usagef("add --mode token or --mode certificate", "--lifetime is for what is minted; mode proxy mints nothing")
	}
	if err := o.applyPreset(cmd); err != nil {
		return err
	}
	if n, err := strconv.Atoi(o.port); o.port != "" && o.port != autoPort && (err != nil || n < 1 || n > 65535) {
		return usagef("--dedicated-port alone picks one", "--dedicated-port wants a port from 1 to 65535, not %q", o.port)
	}
	o.poolGiven = cmd.Flags().Changed("no-pool")
	o.name = cmp.Or(o.name, o.context+"-holdfast")
	return o.nameProfile()
}

// foreign matches the characters that a profile's name cannot hold.
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
	entry, err := o.entry(config, p, status)
	if err != nil {
		return err
	}
	file := config.Contexts[o.context].Origin
	if err := o.reachable(config, file); err != nil {
		return err
	}
	if err := a.writeAll(ctx, o, file, p, known, entry); err != nil {
		return err
	}
	return a.added(ctx, o, file, p)
}
