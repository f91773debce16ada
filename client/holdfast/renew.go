package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/client/enroll"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// renewOptions holds the options of the commands that renew.
type renewOptions struct {
	enroll.Options
	profiles profileOptions
}

func (a *app) certificateRenew() *cobra.Command {
	var o renewOptions
	var now bool
	cmd := &cobra.Command{
		Use: "renew PROFILE|KEY", Short: "renew a key's certificate now, with the one that is still valid",
		Long: `Gets the key of a profile a new certificate from the profile's cluster, signed in
with the key and its present certificate. With --new-key a new key is made, the
next generation of its set (alice, alice.1, alice.2): the old key stays, and its
certificate can be used until it expires.

The new certificate is tried out before a key gets it. Open connections stay open.
An expired certificate cannot renew itself: use holdfast enroll kubernetes.`,
		Example: indent("holdfast certificate renew prod"),
		Args:    arguments("PROFILE"), ValidArgsFunction: o.profiles.complete,
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			return a.renewOne(ctx, c, &o, args[0])
		}),
	}
	cmd.Flags().BoolVar(&o.NewKey, "new-key", false, "make a new key too, and keep the old one until its certificate expires")
	cmd.Flags().BoolVar(&now, "now", false, "renew now, which is what the command does anyway")
	if err := cmd.Flags().MarkHidden("now"); err != nil {
		panic(err) // it was defined above
	}
	o.flags(a, cmd)
	return cmd
}

func (o *renewOptions) flags(a *app, cmd *cobra.Command) {
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 5*time.Minute, "how long to wait for the approval of one request")
	o.profiles.flag(cmd)
	a.jsonFlag(cmd)
}

// renewOne renews the key of one profile, named by itself or by its key.
func (a *app) renewOne(ctx context.Context, c *client.Client, o *renewOptions, name string) error {
	p, err := o.resolve(name)
	if err != nil {
		return err
	}
	a.prepareRenewals(o, c)
	o.Retry = true
	o.Waiting = func(request, _ string) { a.note("certificate signing request %s waits for its approval", request) }
	r := &enroll.Renewal{Options: &o.Options, Profile: p}
	if err := r.Now(ctx); err != nil {
		return o.about(p, err)
	}
	return a.show(o.state(r), func() error { return a.printRenewal(r) })
}

// prepareRenewals sets what the renewals need from the agent.
func (a *app) prepareRenewals(o *renewOptions, c *client.Client) {
	o.Agent = c
	o.CreateKey = func(ctx context.Context, p agentwire.CreateKeyParameters) (agentwire.Key, error) {
		return a.makeKey(ctx, c, p)
	}
}

// about puts the names of a profile and its key into the hint of an error.
func (o *renewOptions) about(p *profile.Profile, err error) error {
	if e, ok := fault.AsError(err); ok && e.Next.Do == fault.Enroll {
		return &problem{message: e.Message, hint: enrollHint(p, o.profiles.system), code: codeOf(e.Kind), err: err}
	}
	return aboutKey(p.Key, err)
}

// resolve finds the profile that an argument names.
func (o *renewOptions) resolve(name string) (*profile.Profile, error) {
	if profile.CheckName(name) == nil {
		if p, err := enroll.Find(o.profiles.directory(), name); p != nil || err != nil {
			return p, err
		}
	}
	if err := keys.CheckName(name); err != nil {
		return nil, usageError(err)
	}
	all, _, err := profile.Load(o.profiles.directory())
	if err != nil {
		return nil, err
	}
	switch names := enroll.ProfilesOf(all, keys.SetOf(name)); len(names) {
	case 0:
		return nil, failf("holdfast enroll kubernetes PROFILE --key "+name+" makes one; for other certificates: holdfast certificate request",
			"no profile in %s is called %s or has a key of that name", o.profiles.directory(), name)
	case 1:
		return all[names[0]], nil
	default:
		return nil, usagef("name the profile: "+strings.Join(names, ", "), "key %s is in several profiles", name)
	}
}

// printRenewal prints the result of a renewal.
func (a *app) printRenewal(r *enroll.Renewal) error {
	a.unproven(r.Unproven)
	_, err := fmt.Fprintf(a.stdout, "%s: key %s renewed until %s, next renewal %s\n", r.Profile.Name, r.Key.Info().Name, when(r.Leaf.NotAfter), when(r.Planned))
	return err
}

// renewalState is the JSON form of a profile in the commands that renew.
type renewalState struct {
	Profile  string     `json:"profile"`
	Key      string     `json:"key,omitempty"`
	NotAfter *time.Time `json:"notAfter,omitempty"`
	Planned  *time.Time `json:"planned,omitempty"` // the next renewal
	Renewed  bool       `json:"renewed"`
	Error    string     `json:"error,omitempty"`
	Hint     string     `json:"hint,omitempty"`
}

func (o *renewOptions) state(r *enroll.Renewal) renewalState {
	s := renewalState{Profile: r.Profile.Name, Renewed: r.Renewed}
	if r.Key != nil {
		until, planned := r.Leaf.NotAfter.UTC(), r.Planned.UTC()
		s.Key, s.NotAfter, s.Planned = r.Key.Info().Name, &until, &planned
	}
	if r.Failed != nil {
		p := explain(o.about(r.Profile, r.Failed))
		s.Error, s.Hint = p.message, p.hint
	}
	return s
}
