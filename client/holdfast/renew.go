package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/client/enroll"
	"holdfast/client/profile"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// renewOptions is what the commands that renew were given.
type renewOptions struct {
	profiles profileOptions
	newKey   bool
	timeout  time.Duration
	noJitter bool
	json     bool
}

func (a *app) certificateRenew() *cobra.Command {
	var o renewOptions
	var now bool
	cmd := &cobra.Command{
		Use: "renew PROFILE|KEY", Short: "renew a key's certificate now, with the one that is still valid",
		Long: `Gets the key of a profile a new certificate from the profile's cluster, signed in
with the key and the certificate that it has. With --new-key a new key is made,
the next generation of its set (alice, alice.1, alice.2): the old one stays, and
its certificate can be used until it expires.

The new certificate is tried out before a key gets it. Connections that are open
stay open. An expired certificate cannot renew itself: holdfast enroll kubernetes.`,
		Example: indent("holdfast certificate renew prod"),
		Args:    arguments("PROFILE"), ValidArgsFunction: o.profiles.complete,
		RunE: a.action(func(ctx context.Context, args []string) error {
			c, err := a.dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			return a.renewOne(ctx, c, &o, args[0])
		}),
	}
	cmd.Flags().BoolVar(&o.newKey, "new-key", false, "make a new key too, and keep the old one until its certificate expires")
	cmd.Flags().BoolVar(&now, "now", false, "whatever is planned (this is what it does anyway)")
	if err := cmd.Flags().MarkHidden("now"); err != nil {
		panic(err) // it was defined above
	}
	o.flags(cmd)
	return cmd
}

func (o *renewOptions) flags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for the approval of one request")
	o.profiles.flag(cmd)
	jsonFlag(cmd, &o.json)
}

// renewOne renews the key of one profile, named by itself or by its key.
func (a *app) renewOne(ctx context.Context, c *client.Client, o *renewOptions, name string) error {
	p, err := o.resolve(name)
	if err != nil {
		return err
	}
	r := &renewing{app: a, agent: c, options: o, profile: p, told: true}
	if err := r.look(ctx); err != nil {
		return aboutKey(p.Key, err)
	}
	if err := r.renew(ctx); err != nil {
		return aboutKey(p.Key, err)
	}
	if o.json {
		return a.json(r.state())
	}
	return r.print()
}

// resolve finds the profile that an argument names.
func (o *renewOptions) resolve(name string) (*profile.Profile, error) {
	if profile.CheckName(name) == nil {
		if p, err := o.profiles.find(name); p != nil || err != nil {
			return p, err
		}
	}
	if err := keys.CheckName(name); err != nil {
		return nil, usageError(err)
	}
	all, _, err := profile.Load(o.profiles.directory())
	if err != nil {
		return nil, &problem{err.Error(), "", exitFailed, err}
	}
	switch names := profilesOf(all, keys.SetOf(name)); len(names) {
	case 0:
		return nil, &problem{
			fmt.Sprintf("no profile in %s is called %s or has a key of that name", o.profiles.directory(), name),
			"holdfast enroll kubernetes PROFILE --key " + name + " makes one; for other certificates: holdfast certificate request", exitFailed, nil,
		}
	case 1:
		return all[names[0]], nil
	default:
		return nil, usagef("name the profile: "+strings.Join(names, ", "), "key %s is in several profiles", name)
	}
}

// renewing is one key on its way to a new certificate.
type renewing struct {
	app     *app
	agent   *client.Client
	options *renewOptions
	profile *profile.Profile
	told    bool // a person watches

	key     *client.Key // the current one, then the one that has the new certificate
	leaf    *x509.Certificate
	planned time.Time
	result  *issued
	failed  error
	after   time.Time // no other try before
	busy    bool      // a renewal is under way, and the rest is its own
}

// look finds the current key, its certificate, and when it is to be renewed.
func (r *renewing) look(ctx context.Context) error {
	k, err := r.agent.Current(ctx, r.profile.Key)
	if err != nil {
		return r.expired(err)
	}
	certificate, err := k.TLSCertificate()
	if err != nil {
		return err
	}
	r.key, r.leaf = k, certificate.Leaf
	seed := jitterSeed(k.Info().Name)
	if r.options.noJitter {
		seed = ""
	}
	r.planned = enroll.Moment(r.leaf, r.profile.Renewal, seed)
	return nil
}

// expired gives the error of a set without a current key the command that helps
// for this profile.
func (r *renewing) expired(err error) error {
	if e, ok := fault.AsError(err); ok && e.Kind == fault.NotFound && strings.Contains(e.Hint, "holdfast enroll") {
		return &problem{e.Message, enrollHint(r.profile, r.options.profiles.system), exitFailed, err}
	}
	return err
}

// renew gets the new certificate.
func (r *renewing) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.timeout)
	defer cancel()
	signedIn, err := newKeyTransport(clusterOf(r.profile), r.key.WithContext(ctx))
	if err != nil {
		return err
	}
	defer signedIn.CloseIdleConnections()
	k := r.key
	if r.options.newKey || r.profile.Renewal.NewKey {
		if k, err = r.nextKey(ctx); err != nil {
			return err
		}
	}
	o := &order{
		cluster: clusterOf(r.profile), agent: r.agent, key: k, signer: r.signer(), lifetime: r.profile.Renewal.Lifetime,
		subject: x509.CertificateRequest{RawSubject: r.leaf.RawSubject, Subject: r.leaf.Subject},
		profile: r.profile.Name, present: r.leaf.Raw, fresh: r.told,
	}
	if r.told {
		o.created = func(request string) { r.app.note("certificate signing request %s waits for its approval", request) }
	}
	result, err := o.get(ctx, signedIn)
	if err != nil {
		return err
	}
	r.key, r.leaf, r.result = k, result.leaf, result
	seed := jitterSeed(k.Info().Name)
	if r.options.noJitter {
		seed = ""
	}
	r.planned = enroll.Moment(r.leaf, r.profile.Renewal, seed)
	return nil
}

func (r *renewing) signer() string {
	if name := r.profile.Renewal.SignerName; name != "" {
		return name
	}
	return signerFor(r.leaf.Subject.CommonName)
}

// print tells what came of a renewal.
func (r *renewing) print() error {
	if r.result.user == nil {
		r.app.note("the certificate is installed, but could not be tried out: %v", r.result.why)
	}
	_, err := fmt.Fprintf(r.app.stdout, "%s: key %s renewed until %s, next renewal %s\n", r.profile.Name, r.key.Info().Name, when(r.leaf.NotAfter), when(r.planned))
	return err
}

// renewalState is what the commands that renew print of a profile as JSON.
type renewalState struct {
	Profile  string     `json:"profile"`
	Key      string     `json:"key,omitempty"`
	NotAfter *time.Time `json:"notAfter,omitempty"`
	Planned  *time.Time `json:"planned,omitempty"` // the next renewal
	Renewed  bool       `json:"renewed"`
	Error    string     `json:"error,omitempty"`
	Hint     string     `json:"hint,omitempty"`
}

func (r *renewing) state() renewalState {
	s := renewalState{Profile: r.profile.Name, Renewed: r.result != nil}
	if r.key != nil {
		until, planned := r.leaf.NotAfter.UTC(), r.planned.UTC()
		s.Key, s.NotAfter, s.Planned = r.key.Info().Name, &until, &planned
	}
	if r.failed != nil {
		p := explain(r.failed)
		s.Error, s.Hint = p.message, p.hint
	}
	return s
}

// jitterSeed tells this machine's key from others, for jitter.
func jitterSeed(key string) string {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		name, _ := os.Hostname() // jitter of a machine without a name is that of all such machines
		id = []byte(name)
	}
	return enroll.Seed(strings.TrimSpace(string(id)), keys.SetOf(key))
}

// isInterrupted reports whether the person gave up.
func isInterrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
