package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client/enroll"
)

// dueOptions holds the options of `renew`.
type dueOptions struct {
	renewOptions
	due, prune bool
	within     time.Duration
}

func (a *app) renewCommand() *cobra.Command {
	var o dueOptions
	cmd := &cobra.Command{
		Use: "renew --due", Short: "renew the certificates that are due, from a timer",
		Long: `Renews the certificates of all profiles that are due: after the fraction of their
lifetime that the profile says (renewal.fraction, else 0.7), less the profile's
jitter (renewal.jitter), which is the same each time for one key of one machine.
It prints nothing when nothing is due. A failure prints one line and sets exit code
1; the next run tries again.

With --within the command waits for renewals that are planned that soon, and renews
within a second or so of the planned time. The timer's period should be a little
less than that, as in the package's holdfast-renew.timer: OnCalendar=*:0/10,
AccuracySec=1s, and --within 11m.

Keys of earlier generations stay until --prune, which deletes those whose
certificate expired more than a day ago.`,
		Example: indent("holdfast renew --due --within 11m"),
		Args:    arguments(),
		PreRunE: func(*cobra.Command, []string) error {
			switch {
			case !o.due:
				return usagef("it renews the certificates that are due; holdfast certificate renew PROFILE renews one now", "--due is missing")
			case o.within < 0:
				return usagef("", "--within %s is in the past", o.within)
			}
			return nil
		},
		RunE: a.action(func(ctx context.Context, _ []string) error { return a.renewDue(ctx, &o) }),
	}
	f := cmd.Flags()
	f.BoolVar(&o.due, "due", false, "renew what is due")
	f.DurationVar(&o.within, "within", 0, "wait for renewals that are planned within so long (default none)")
	f.BoolVar(&o.NoJitter, "no-jitter", false, "renew exactly at the fraction, whatever jitter the profiles say")
	f.BoolVar(&o.prune, "prune", false, "delete keys of earlier generations whose certificate expired more than a day ago")
	o.flags(a, cmd)
	return cmd
}

// renewDue renews what is due. Without a profile to renew it does not need an agent.
func (a *app) renewDue(ctx context.Context, o *dueOptions) error {
	all, faults, err := enroll.Due(o.profiles.directory(), &o.Options)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		a.tell("error", fmt.Sprintf("profile %s: %v", name, faults[name]))
	}
	failures := 0
	if len(all) > 0 {
		c, err := a.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		a.prepareRenewals(&o.renewOptions, c)
		if failures, err = a.run(o, all).Do(ctx); err != nil {
			return err
		}
	}
	if a.asJSON {
		states := []renewalState{}
		for _, r := range all {
			states = append(states, o.state(r))
		}
		if err := a.json(states); err != nil {
			return err
		}
	}
	if failures+len(faults) > 0 {
		return answered{exitFailed}
	}
	return nil
}

// run returns a run that prints its progress. A failure is one line, for logs.
func (a *app) run(o *dueOptions, all []*enroll.Renewal) *enroll.Run {
	return &enroll.Run{
		Renewals: all, Within: o.within, Prune: o.prune,
		Renewed: func(r *enroll.Renewal) error {
			if a.asJSON {
				return nil
			}
			return a.printRenewal(r)
		},
		Failed: func(r *enroll.Renewal) {
			p := explain(o.about(r.Profile, r.Failed))
			text := r.Profile.Name + ": " + strings.ReplaceAll(p.message, "\n", "; ")
			if p.hint != "" {
				text += " (" + p.hint + ")"
			}
			a.tell("error", text)
		},
		Deleted: func(r *enroll.Renewal, key string) {
			a.note("%s: key %s deleted, its certificate expired more than a day ago", r.Profile.Name, key)
		},
	}
}
