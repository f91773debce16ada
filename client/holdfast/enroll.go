package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/client/enroll"
	"holdfast/client/exchange/kubernetes/signin"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

func (a *app) enrollCommands() *cobra.Command {
	return a.group("enroll", "get a key its first certificate", "holdfast enroll kubernetes prod --key alice --create --context prod-admin",
		a.enrollKubernetes())
}

// enrollOptions holds the options of `enroll kubernetes`.
type enrollOptions struct {
	enroll.Request
	profiles      profileOptions
	key           createOptions
	create        bool
	subject, node string

	server, ca, serverName, proxy, tokenFile string // instead of a context
}

func (a *app) enrollKubernetes() *cobra.Command {
	var o enrollOptions
	o.key.source.instead = "make the key before: holdfast key create takes --pin-fd"
	cmd := &cobra.Command{
		Use: "kubernetes PROFILE --key NAME", Short: "get a key a certificate from a cluster, through its CSR API",
		Long: `Gets a key a certificate that signs in to a Kubernetes cluster, and writes the
profile that holdfast-broker and holdfast renew use.

The first certificate is requested with another credential: that of a context of
the kubeconfig (an exec plugin with a browser login runs on this terminal), or a
bootstrap token. That credential is not kept, and the kubeconfig is only read.

A user who may approve certificate signing requests has to approve this one; those
of nodes are approved by the cluster. The certificate is tried out before the key
gets it.`,
		Example: indent("holdfast enroll kubernetes prod --key alice --create --context prod-admin\n" +
			"holdfast enroll kubernetes node --node worker-1 --key node --create --server https://api:6443 --ca ca.pem --token-file token"),
		Args: oneProfile, ValidArgsFunction: o.profiles.complete,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			o.Profile = args[0]
			err := a.enroll(ctx, c, &o)
			return aboutKey(o.Key, err)
		}),
	}
	o.flags(a, cmd)
	return cmd
}

func (o *enrollOptions) flags(a *app, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Key, "key", "", "the `NAME` of the key (default the profile's)")
	f.BoolVar(&o.create, "create", false, "make the key when there is none")
	f.StringVar(&o.key.Backend, "backend", "", "with --create: the `BACKEND`, tpm or piv (default the agent's first device)")
	f.StringVar(&o.key.Algorithm, "algorithm", "", "with --create: the `ALGORITHM`: "+words(keys.Algorithms())+" (default ES256)")
	complete(cmd, "algorithm", keys.Algorithms())
	complete(cmd, "backend", []string{"tpm", pivBackend})
	f.IntVar(&o.key.RSABits, "rsa-bits", 0, "with --create: how many `BITS`: 2048, 3072 or 4096 (default 2048)")
	f.BoolVar(&o.key.Persistent, "persistent", false, "with --create: keep the key at a persistent handle of the TPM")
	f.BoolVar(&o.key.TLS12, "tls12", false, "with --create: let the key sign TLS 1.2 too")
	f.StringVar(&o.Source.Kubeconfig, "kubeconfig", "", "the kubeconfig `FILE` (default $KUBECONFIG, else ~/.kube/config)")
	f.StringVar(&o.Source.Context, "context", "", "the kubeconfig's `CONTEXT` whose cluster it is and whose user signs in (default the current one)")
	f.StringVar(&o.tokenFile, "token-file", "", "the `FILE` with a bootstrap token that signs in, or - for stdin, instead of a context")
	f.StringVar(&o.server, "server", "", "with --token-file: the `URL` of the API server (default the profile's)")
	f.StringVar(&o.ca, "ca", "", "with --server: the `FILE` of the certificates, PEM, that must have issued the server's")
	f.StringVar(&o.serverName, "tls-server-name", "", "with --server: the `NAME` in the server's certificate (default its host)")
	f.StringVar(&o.proxy, "proxy-url", "", "with --server: the `URL` of the proxy to the server, http, https or socks5 (default HTTPS_PROXY's)")
	f.StringVar(&o.subject, "subject", "", "the `SUBJECT`: CN is the user, each O a group (default the user that signs in)")
	f.StringVar(&o.node, "node", "", "enroll the node `NAME` rather than a person")
	f.StringVar(&o.Signer, "signer-name", "", "the `SIGNER` (default "+enroll.PeopleSigner+", for nodes "+enroll.NodeSigner+")")
	f.DurationVar(&o.Lifetime, "lifetime", 0, "how long the certificate is asked to be valid, 10m0s at least (default the signer's own)")
	f.DurationVar(&o.Timeout, "timeout", 10*time.Minute, "how long to wait for the approval")
	f.BoolVar(&o.NoJitter, "no-jitter", false, "renew exactly when planned, not up to a tenth of the lifetime earlier")
	f.BoolVar(&o.NewKey, "renew-with-new-key", false, "have each renewal make a new key")
	o.profiles.flag(cmd)
	a.jsonFlag(cmd)
}

// check finds mistakes that need neither the agent nor the cluster.
func (o *enrollOptions) check() error {
	if o.Key != "" {
		if err := keys.CheckName(o.Key); err != nil {
			return usageError(err)
		}
	}
	o.key.Purpose = string(keys.TLSClient)
	if err := o.key.check(); err != nil {
		return err
	}
	if o.subject != "" {
		subject, err := enroll.ParseSubject(o.subject)
		if err != nil {
			return usageError(err)
		}
		o.Subject = &subject
	}
	changed := o.key.Backend != "" || o.key.Algorithm != "" || o.key.RSABits != 0 || o.key.Persistent || o.key.TLS12
	switch {
	case o.subject != "" && o.node != "":
		return usagef("", "--subject and --node exclude each other")
	case strings.ContainsFunc(o.node, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }):
		return usagef("", "%q is not the name of a node", o.node)
	case changed && !o.create:
		return usagef("add --create", "options for a new key need --create")
	case o.Lifetime != 0 && (o.Lifetime < profile.MinLifetime || o.Lifetime > profile.MaxLifetime):
		return usagef("it is from 10m to 68 years", "--lifetime %s cannot be asked for", o.Lifetime)
	case o.Timeout <= 0:
		return usagef("", "--timeout %s is not a time to wait", o.Timeout)
	}
	if o.node != "" {
		o.Subject = enroll.NodeSubject(o.node)
	}
	return o.checkSource()
}

func (o *enrollOptions) checkSource() error {
	switch {
	case o.tokenFile != "" && (o.Source.Kubeconfig != "" || o.Source.Context != ""):
		return usagef("leave one of them out", "--token-file and a kubeconfig's context are two ways to sign in")
	case o.server != "" && o.tokenFile == "":
		return usagef("the token's file, or - for stdin", "--server needs --token-file")
	case (o.server != "") != (o.ca != ""):
		return usagef("the CA's certificates say which server is the right one", "--server and --ca go together")
	case o.server == "" && (o.serverName != "" || o.proxy != ""):
		return usagef("", "--tls-server-name and --proxy-url go with --server")
	}
	return nil
}

// readSource reads the files of the options: the CA's certificates and the token.
func (a *app) readSource(o *enrollOptions) error {
	if o.server != "" {
		roots, err := a.readCertificates(o.ca)
		if err != nil {
			return err
		}
		o.Source.Cluster = &profile.Cluster{
			Server: o.server, CertificateAuthorityData: string(encodeCertificates(roots)), TLSServerName: o.serverName, ProxyURL: o.proxy,
		}
	}
	if o.tokenFile != "" {
		token, err := a.read(o.tokenFile)
		if err != nil {
			return err
		}
		if o.Source.Token = string(bytes.TrimSpace(token)); o.Source.Token == "" {
			return failf("", "%s holds no token", inputName(o.tokenFile))
		}
	}
	stdin, _ := a.stdin.(*os.File)
	o.Source.Streams = signin.Streams{Stdin: stdin, Stderr: a.stderr, Terminal: isTerminal(a.stdin)}
	return nil
}

// enroll gets the certificate and prints the result.
func (a *app) enroll(ctx context.Context, c *client.Client, o *enrollOptions) error {
	if err := a.readSource(o); err != nil {
		return err
	}
	o.Directory = o.profiles.directory()
	if o.create {
		o.CreateKey = func(ctx context.Context, name string) (agentwire.Key, error) {
			o.key.Name = name
			return a.newKey(ctx, c, &o.key)
		}
	}
	stop := func() {}
	o.Waiting = func(request, signer string) {
		a.note("certificate signing request %s waits for the approval of a user who may approve for %s:", request, signer)
		a.note("    kubectl certificate approve %s", request)
		stop() // of an earlier request
		stop = a.progress("waiting for approval")
	}
	e, err := o.Enroll(ctx, c)
	stop()
	if err != nil {
		return err
	}
	return a.enrolled(e)
}

// enrollment is the JSON form of `enroll kubernetes`.
type enrollment struct {
	Profile  string    `json:"profile"`
	Key      string    `json:"key"`
	User     string    `json:"user,omitempty"` // as the API server said
	Groups   []string  `json:"groups,omitempty"`
	Subject  string    `json:"subject"`
	NotAfter time.Time `json:"notAfter"`
	Planned  time.Time `json:"planned"` // when it will be renewed
}

func (a *app) enrolled(e *enroll.Enrollment) error {
	if a.asJSON {
		out := enrollment{
			Profile: e.Profile.Name, Key: e.Key, Subject: e.Leaf.Subject.String(), NotAfter: e.Leaf.NotAfter, Planned: e.Planned.UTC(),
		}
		if e.User != nil {
			out.User, out.Groups = e.User.Username, e.User.Groups
		}
		return a.json(out)
	}
	signedIn := "unknown: the API server does not say"
	if e.User != nil {
		signedIn = e.User.Username
		if groups := enroll.Groups(*e.User); len(groups) > 0 {
			signedIn += fmt.Sprintf(" (groups %s)", words(groups))
		}
	}
	a.unproven(e.Unproven)
	err := table(a.stdout,
		[]string{"profile", e.Profile.Name},
		[]string{"server", serverOf(e.Profile)},
		[]string{"key", e.Key},
		[]string{"signed in as", signedIn},
		[]string{"valid until", when(e.Leaf.NotAfter)},
		[]string{"renewal", when(e.Planned) + ", by holdfast renew --due"},
	)
	a.note("next: holdfast kubeconfig add %s --key %s --profile %s", cmp.Or(e.Context, "CONTEXT"), e.Profile.Key, e.Profile.Name)
	return err
}

// unproven notes that a new certificate could not be tried out.
func (a *app) unproven(err error) {
	if err != nil {
		a.note("the certificate is installed, but could not be tried out: %v", err)
	}
}
