package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/client/exchange/kubernetes/signin"
	"holdfast/client/profile"
)

// profileOptions says whose profiles a command works on.
type profileOptions struct{ system bool }

func (o *profileOptions) flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.system, "system", false, "the machine's profiles ("+profile.Directory(true)+") instead of yours")
}

func (o *profileOptions) directory() string { return profile.Directory(o.system) }

// find returns a profile, or nil when there is none of the name.
func (o *profileOptions) find(name string) (*profile.Profile, error) {
	all, faults, err := profile.Load(o.directory())
	if err == nil && faults[name] != nil {
		err = faults[name]
	}
	if err != nil {
		return nil, &problem{err.Error(), "correct or remove the file", exitFailed, err}
	}
	return all[name], nil
}

// complete has the shell complete names of profiles.
func (o *profileOptions) complete(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, _, _ := profile.Load(o.directory()) // nobody to tell in the middle of a line
	return slices.Sorted(maps.Keys(all)), cobra.ShellCompDirectiveNoFileComp
}

// oneProfile accepts a profile's name.
func oneProfile(cmd *cobra.Command, args []string) error {
	if err := arguments("PROFILE")(cmd, args); err != nil {
		return err
	}
	if err := profile.CheckName(args[0]); err != nil {
		return usageError(err)
	}
	return nil
}

// clusterOf is a profile's cluster as transports know it.
func clusterOf(p *profile.Profile) *signin.Cluster {
	return &signin.Cluster{
		Server: p.Cluster.Server, CertificateAuthorityData: []byte(p.Cluster.CertificateAuthorityData),
		TLSServerName: p.Cluster.TLSServerName, ProxyURL: p.Cluster.ProxyURL, DisableCompression: p.Cluster.DisableCompression,
	}
}

// profilesOf returns the names of the profiles whose key is of a set.
func profilesOf(all map[string]*profile.Profile, set string) []string {
	var names []string
	for name, p := range all {
		if p.Key == set {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// enrollHint is the command that gets a profile's key another certificate.
func enrollHint(p *profile.Profile, system bool) string {
	words := []string{"holdfast enroll kubernetes", p.Name, "--key", p.Key}
	if system {
		words = append(words, "--system")
	}
	return fmt.Sprintf("%s --context CONTEXT gets another, signed in by a context of your kubeconfig (or --token-file FILE)", strings.Join(words, " "))
}
