package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client/enroll"
	"holdfast/client/profile"
	"holdfast/internal/keys"
)

// dueOptions is what `renew` was given.
type dueOptions struct {
	renewOptions
	due    bool
	within time.Duration
	prune  bool
}

func (a *app) renewCommand() *cobra.Command {
	var o dueOptions
	cmd := &cobra.Command{
		Use: "renew --due", Short: "renew the certificates that are due; made for a timer",
		Long: `Renews the certificates of all profiles that are due: after the fraction of their
lifetime that the profile says (renewal.fraction, else 0.7), less the profile's
jitter (renewal.jitter), which is the same each time for one key of one machine.
It prints nothing when nothing is due. What fails is one line and exit code 1; the
next run tries again.

With --within a renewal that is planned that soon is waited for, and done within a
second or so of its moment. Let the timer's period be a little less than that, as
the package's holdfast-renew.timer does: OnCalendar=*:0/10, AccuracySec=1s, and
--within 11m.

Keys of earlier generations stay until --prune, which deletes those whose
certificate expired more than a day ago.`,
		Example: indent("holdfast renew --due --within 11m"),
		Args:    arguments(),
		PreRunE: func(*cobra.Command, []string) error {
			switch {
			case !o.due:
				return usagef("--due renews what is due; holdfast certificate renew PROFILE renews one now", "what to renew was not said")
			case o.within < 0:
				return usagef("", "--within %s is in the past", o.within)
			}
			return nil
		},
		RunE: a.action(func(ctx context.Context, _ []string) error {
			all, failures, err := a.renewals(&o)
			if err != nil {
				return err
			}
			if len(all) == 0 { // nobody to ask about anything
				return a.renewed(nil, failures, o.json)
			}
			c, err := a.dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			for _, r := range all {
				r.agent = c
			}
			return (&dueRun{app: a, options: &o, all: all, failures: failures, done: make(chan finished)}).run(ctx)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&o.due, "due", false, "renew what is due")
	f.DurationVar(&o.within, "within", 0, "wait for renewals that are planned within so long (default none)")
	f.BoolVar(&o.noJitter, "no-jitter", false, "renew exactly at the fraction, whatever jitter the profiles say")
	f.BoolVar(&o.prune, "prune", false, "delete keys of earlier generations whose certificate expired more than a day ago")
	o.flags(cmd)
	return cmd
}

// renewals is the profiles whose certificates this tool renews. Those with a fault
// are told of, and counted.
func (a *app) renewals(o *dueOptions) (all []*renewing, failures int, err error) {
	profiles, faults, err := profile.Load(o.profiles.directory())
	if err != nil {
		return nil, 0, &problem{err.Error(), "", exitFailed, err}
	}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		a.tell("error", fmt.Sprintf("profile %s: %v", name, faults[name]))
		failures++
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		p := profiles[name]
		if p.Renewal.SignerName == "" || seen[p.Key] { // enrolled in another way, or renewed for another profile
			continue
		}
		seen[p.Key] = true
		all = append(all, &renewing{app: a, options: &o.renewOptions, profile: p})
	}
	return all, failures, nil
}

// renewed ends a run.
func (a *app) renewed(all []*renewing, failures int, asJSON bool) error {
	if asJSON {
		states := []renewalState{}
		for _, r := range all {
			states = append(states, r.state())
		}
		if err := a.json(states); err != nil {
			return err
		}
	}
	if failures > 0 {
		return answered{exitFailed}
	}
	return nil
}

// plannedFor tells when the certificate of a key is renewed, or nothing for one
// that no profile renews.
func plannedFor(key string, leaf *x509.Certificate) (at time.Time, profileName string) {
	for _, system := range []bool{false, true} {
		all, _, _ := profile.Load(profile.Directory(system)) // what cannot be read renews nothing
		for _, name := range profilesOf(all, keys.SetOf(key)) {
			if p := all[name]; p.Renewal.SignerName != "" {
				return enroll.Moment(leaf, p.Renewal, jitterSeed(key)), name
			}
		}
	}
	return time.Time{}, ""
}
