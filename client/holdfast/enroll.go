package main

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/client/exchange/kubernetes"
	"holdfast/client/exchange/kubernetes/signin"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

func (a *app) enrollCommands() *cobra.Command {
	return a.group("enroll", "get a key its first certificate", "holdfast enroll kubernetes prod --key alice --create --context prod-admin",
		a.enrollKubernetes())
}

// enrollOptions is what `enroll kubernetes` was given.
type enrollOptions struct {
	profiles profileOptions
	source   enrollSource
	key      createOptions // the key's name is in it
	create   bool
	subject  string
	node     string
	signer   string
	lifetime time.Duration
	timeout  time.Duration
	noJitter bool
	newKey   bool
	json     bool
}

func (a *app) enrollKubernetes() *cobra.Command {
	var o enrollOptions
	o.key.source.instead = "make the key before: holdfast key create takes --pin-fd"
	cmd := &cobra.Command{
		Use: "kubernetes PROFILE --key NAME", Short: "get a key a certificate from a cluster, through its CSR API",
		Long: `Gets a key a certificate that signs in to a Kubernetes cluster, and writes the
profile that holdfast-broker and holdfast renew work by.

To ask for the certificate one has to sign in once in another way: by a context of
the kubeconfig, whatever it signs in with (a browser login through an exec plugin
is run with this terminal), or by a bootstrap token. Nothing of that is kept, and
the kubeconfig is only read.

Who may approve requests approves this one; for nodes the cluster does it by
itself. The certificate is tried out before the key gets it.`,
		Example: indent("holdfast enroll kubernetes prod --key alice --create --context prod-admin\n" +
			"holdfast enroll kubernetes node --node worker-1 --key node --create --server https://api:6443 --ca ca.pem --token-file token"),
		Args: oneProfile, ValidArgsFunction: o.profiles.complete,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE: a.action(func(ctx context.Context, args []string) error {
			c, err := a.dialFor(ctx, answerTime)
			if err != nil {
				return err
			}
			defer c.Close()
			return aboutKey(o.key.Name, a.enroll(ctx, c, &o, args[0]))
		}),
	}
	o.flags(cmd)
	return cmd
}

func (o *enrollOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.key.Name, "key", "", "the `NAME` of the key (default the profile's)")
	f.BoolVar(&o.create, "create", false, "make the key when there is none")
	f.StringVar(&o.key.Backend, "backend", "", "with --create: the `BACKEND`, tpm or piv (default the agent's first device)")
	f.StringVar(&o.key.Algorithm, "algorithm", "", "with --create: the `ALGORITHM`: "+words(keys.Algorithms())+" (default ES256)")
	complete(cmd, "algorithm", keys.Algorithms())
	complete(cmd, "backend", []string{"tpm", pivBackend})
	f.IntVar(&o.key.RSABits, "rsa-bits", 0, "with --create: how many `BITS`: 2048, 3072 or 4096 (default 2048)")
	f.BoolVar(&o.key.Persistent, "persistent", false, "with --create: keep the key at a persistent handle of the TPM")
	f.BoolVar(&o.key.TLS12, "tls12", false, "with --create: let the key sign TLS 1.2 too")
	o.source.flags(cmd)
	f.StringVar(&o.subject, "subject", "", "the `SUBJECT`: CN is the user, each O a group (default who signs in)")
	f.StringVar(&o.node, "node", "", "enroll the node `NAME` rather than a person")
	f.StringVar(&o.signer, "signer-name", "", "the `SIGNER` (default "+peopleSigner+", for nodes "+nodeSigner+")")
	f.DurationVar(&o.lifetime, "lifetime", 0, "how long the certificate is asked to be valid, 10m0s at least (default the signer's own)")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long to wait for the approval")
	f.BoolVar(&o.noJitter, "no-jitter", false, "renew exactly when planned, not up to a tenth of the lifetime earlier")
	f.BoolVar(&o.newKey, "renew-with-new-key", false, "have each renewal make a new key")
	o.profiles.flag(cmd)
	jsonFlag(cmd, &o.json)
}

// check finds mistakes that need neither the agent nor the cluster.
func (o *enrollOptions) check() error {
	if o.key.Name != "" {
		if err := keys.CheckName(o.key.Name); err != nil {
			return usageError(err)
		}
	}
	o.key.Purpose = string(keys.TLSClient)
	if err := o.key.check(); err != nil {
		return err
	}
	if o.subject != "" {
		if _, err := parseSubject(o.subject); err != nil {
			return usageError(err)
		}
	}
	changed := o.key.Backend != "" || o.key.Algorithm != "" || o.key.RSABits != 0 || o.key.Persistent || o.key.TLS12
	switch {
	case o.subject != "" && o.node != "":
		return usagef("", "--subject and --node exclude each other")
	case strings.ContainsFunc(o.node, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }):
		return usagef("", "%q is not the name of a node", o.node)
	case changed && !o.create:
		return usagef("add --create", "how to make a key was said, but not to make one")
	case o.lifetime != 0 && (o.lifetime < profile.MinLifetime || o.lifetime > profile.MaxLifetime):
		return usagef("it is from 10m to 68 years", "--lifetime %s cannot be asked for", o.lifetime)
	case o.timeout <= 0:
		return usagef("", "--timeout %s is no time at all", o.timeout)
	}
	return o.source.check()
}

// enroll gets the certificate and writes the profile.
func (a *app) enroll(ctx context.Context, c *client.Client, o *enrollOptions, name string) error {
	p, err := a.prepare(o, name)
	if err != nil {
		return err
	}
	auth, err := a.signIn(ctx, &o.source, clusterOf(p))
	if err != nil {
		return err
	}
	signedIn, err := clusterOf(p).Transport(auth)
	if err != nil {
		return &problem{err.Error(), "", exitFailed, err}
	}
	defer signedIn.CloseIdleConnections()
	subject, err := o.whom(ctx, p, signedIn)
	if err != nil {
		return err
	}
	if o.signer == "" {
		o.signer = signerFor(subject.CommonName)
	}
	o.renewal(p)
	if err := p.Check(); err != nil { // before the cluster is asked for anything
		return &problem{fmt.Sprintf("profile %s: %v", name, err), "", exitFailed, err}
	}
	k, err := a.keyFor(ctx, c, o, p)
	if err != nil {
		return err
	}
	result, err := a.order(ctx, o, &order{
		cluster: clusterOf(p), agent: c, key: k, subject: x509.CertificateRequest{Subject: subject},
		signer: o.signer, lifetime: o.lifetime, profile: p.Name, present: leafOfKey(k), fresh: true,
	}, signedIn)
	if err != nil {
		return err
	}
	if err := profile.Write(o.profiles.directory(), p); err != nil {
		return &problem{err.Error(), "the key has its certificate; correct this and run the command again", exitFailed, err}
	}
	return a.enrolled(o, p, k, result)
}

// order carries out an order while the person is told what it waits for.
func (a *app) order(ctx context.Context, o *enrollOptions, what *order, signedIn *signin.Transport) (*issued, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	stop := func() {}
	what.created = func(request string) {
		a.note("certificate signing request %s waits for the approval of somebody who may approve for %s:", request, what.signer)
		a.note("    kubectl certificate approve %s", request)
		stop() // of an earlier request
		stop = a.alive("waiting for approval")
	}
	result, err := what.get(ctx, signedIn)
	stop()
	return result, err
}

// renewal notes in the profile how its certificate will be renewed.
func (o *enrollOptions) renewal(p *profile.Profile) {
	first := p.Renewal.SignerName == ""
	p.Renewal.SignerName, p.Renewal.Lifetime = o.signer, o.lifetime
	p.Renewal.NewKey = o.newKey || p.Renewal.NewKey
	switch {
	case o.noJitter:
		p.Renewal.Jitter = 0
	case first && p.Renewal.Jitter == 0 && (p.Renewal.Fraction == 0 || p.Renewal.Fraction > usualJitter):
		p.Renewal.Jitter = usualJitter
	}
}

// usualJitter keeps the machines of a fleet that was enrolled in one go apart.
const usualJitter = 0.1

// signerFor is the signer of Kubernetes itself for a user.
func signerFor(commonName string) string {
	if profile.Node(commonName) {
		return nodeSigner
	}
	return peopleSigner
}

// whom returns the subject to ask for: what was said, else who signs in.
func (o *enrollOptions) whom(ctx context.Context, p *profile.Profile, signedIn *signin.Transport) (pkix.Name, error) {
	switch {
	case o.node != "":
		return pkix.Name{CommonName: "system:node:" + o.node, Organization: []string{"system:nodes"}}, nil
	case o.subject != "":
		return parseSubject(o.subject)
	}
	user, err := (&kubernetes.Client{Server: p.Cluster.Server, HTTP: signedIn}).WhoAmI(ctx)
	if err != nil {
		return pkix.Name{}, (&order{}).explain(fmt.Errorf("who signs in: %w", err))
	}
	if strings.HasPrefix(user.Username, "system:") && !profile.Node(user.Username) {
		return pkix.Name{}, usagef("--subject CN=USER,O=GROUP or --node NAME says whom", "%s signs in, which is nobody to enroll", printable(user.Username))
	}
	groups := slices.DeleteFunc(slices.Clone(user.Groups), func(g string) bool { return g == authenticatedGroup })
	return pkix.Name{CommonName: user.Username, Organization: groups}, nil
}

// keyFor returns the key to enroll: the newest usable one of the set, or a new one
// when there is none and one may be made.
func (a *app) keyFor(ctx context.Context, c *client.Client, o *enrollOptions, p *profile.Profile) (*client.Key, error) {
	set, err := c.Generations(ctx, p.Key)
	if fault.KindOf(err) == fault.Denied && o.create {
		k, err := a.newKey(ctx, c, &o.key)
		if err != nil {
			return nil, err
		}
		return c.Key(ctx, k.Name)
	}
	if err != nil {
		return nil, err
	}
	newest := set[0]
	if i := slices.IndexFunc(set, func(k agentwire.Key) bool { return k.Fault == "" }); i > 0 {
		newest = set[i]
	}
	if newest.Purpose != string(keys.TLSClient) {
		return nil, &fault.Error{
			Kind: fault.WrongPurpose, Message: fmt.Sprintf("key %s is for %s and cannot sign in", newest.Name, newest.Purpose),
			Hint: "--key NAME --create makes one that can",
		}
	}
	return c.Key(ctx, newest.Name)
}
