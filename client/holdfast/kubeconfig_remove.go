package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"holdfast/client/kubeconfig"
	"holdfast/client/kubeconfig/edit"
	"holdfast/client/profile"
)

func (a *app) kubeconfigRemove() *cobra.Command {
	var o kubeOptions
	cmd := &cobra.Command{
		Use: "remove PROFILE|CONTEXT", Aliases: []string{"rm"}, Short: "remove what add has written",
		Long: `Removes the entries that holdfast kubeconfig add wrote, for one context or for all
of a profile, and restores the user and the cluster that a context had. The
kubeconfig is then what it was, byte for byte, unless it was changed otherwise. The
profile is removed with its last context, unless holdfast enroll kubernetes wrote
it: holdfast renew --due needs that one. Name the profile to remove it too.`,
		Example: indent("holdfast kubeconfig remove kind-dev-holdfast"),
		Args:    arguments("PROFILE|CONTEXT"),
		RunE:    a.action(func(ctx context.Context, args []string) error { return a.removeContext(ctx, &o, args[0]) }),
	}
	cmd.ValidArgsFunction = completing(func(o *kubeOptions) []string {
		return slices.Concat(profileNames(o), ourContexts(o))
	}).first(&o)
	o.register(cmd)
	a.jsonFlag(cmd)
	return cmd
}

// ourContexts returns the contexts that use entries of add.
func ourContexts(o *kubeOptions) []string {
	config, err := kubeconfig.Load(o.file)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(config.Contexts)), func(name string) bool { return recordOf(config, name) == nil })
}

// removal holds the entries to remove.
type removal struct {
	users   []string // the entries, by their name
	profile string
	whole   bool // the profile, whoever else uses it
}

// what finds the entries of a name: those of a context before those of a profile,
// because that removes less.
func what(config *kubeconfig.Config, name string) removal {
	if record := recordOf(config, name); record != nil {
		return removal{[]string{config.Contexts[name].AuthInfo}, record.Profile, false}
	}
	r := removal{profile: name, whole: true}
	for _, user := range slices.Sorted(maps.Keys(config.Users)) {
		if record := edit.RecordOf(config.Users[user]); record != nil && record.Profile == name {
			r.users = append(r.users, user)
		}
	}
	return r
}

// removedContexts is the JSON form of `kubeconfig remove`.
type removedContexts struct {
	Contexts []string `json:"contexts"`
	Profile  string   `json:"profile,omitempty"` // when no context uses it any more
}

func (a *app) removeContext(ctx context.Context, o *kubeOptions, name string) error {
	config, err := o.load()
	if err != nil {
		return err
	}
	r := what(config, name)
	dir := profile.Directory(o.system)
	known := profile.CheckName(r.profile) == nil && exists(dir, r.profile)
	if len(r.users) == 0 && !known {
		return failf("holdfast kubeconfig list shows them", "there is neither a profile %q nor a context of that name that holdfast has added", name)
	}
	removed := removedContexts{Contexts: []string{}}
	for _, user := range r.users {
		file := config.Users[user].Origin
		remove := func(data []byte) ([]byte, error) { return edit.Remove(data, user) }
		if err := editFile(ctx, file, remove); err != nil {
			return err
		}
		removed.Contexts = append(removed.Contexts, user)
		if !a.asJSON {
			fmt.Fprintf(a.stdout, "removed %s from %s\n", oneLine(user), oneLine(file))
		}
	}
	if err := a.dropProfile(o, r, known); err != nil || !a.asJSON {
		return err
	}
	if known && !exists(dir, r.profile) {
		removed.Profile = r.profile
	}
	return a.json(removed)
}

// enrolled reports whether holdfast renew renews the certificate of a profile's
// key: holdfast enroll has noted its signer.
func enrolled(o *kubeOptions, name string) bool {
	profiles, _, err := o.profiles()
	return err == nil && profiles[name] != nil && profiles[name].Renewal.SignerName != ""
}

// dropProfile removes the profile when no context uses it any more, and notes what is
// left behind.
func (a *app) dropProfile(o *kubeOptions, r removal, known bool) error {
	config, err := o.load()
	if err != nil {
		return err
	}
	users := contextsByProfile(config)[r.profile]
	switch {
	case !known:
	case len(users) > 0 && !r.whole:
		a.note("profile %s stays: %s", r.profile, plural(len(users), "context uses it", "contexts use it")+": "+words(users))
	case !r.whole && enrolled(o, r.profile):
		a.note("profile %s stays: holdfast renew --due renews the certificate of its key by it; holdfast kubeconfig remove %s, once more, removes it", r.profile, r.profile)
	default:
		if err := profile.Remove(profile.Directory(o.system), r.profile); err != nil {
			return err
		}
		if !a.asJSON {
			fmt.Fprintf(a.stdout, "removed profile %s\n", r.profile)
		}
		if len(users) > 0 {
			a.note("these contexts named it, and holdfast did not add them: %s", words(users))
		}
	}
	if current := config.CurrentContext; current != "" && config.Contexts[current] == nil {
		a.note("the current context, %s, is no more; kubectl config use-context chooses another", current)
	}
	return nil
}
