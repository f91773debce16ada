package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/client/profile"
)

// profileOptions says whose profiles a command works on.
type profileOptions struct{ system bool }

func (o *profileOptions) flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.system, "system", false, "the machine's profiles ("+profile.Directory(true)+") instead of yours")
}

func (o *profileOptions) directory() string { return profile.Directory(o.system) }

// complete has the shell complete names of profiles.
func (o *profileOptions) complete(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, _, _ := profile.Load(o.directory()) // an error cannot be shown during completion
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

// enrollHint is the command that gets a profile's key another certificate.
func enrollHint(p *profile.Profile, system bool) string {
	words := []string{"holdfast enroll kubernetes", p.Name, "--key", p.Key}
	if system {
		words = append(words, "--system")
	}
	return fmt.Sprintf("%s --context CONTEXT gets another, signed in by a context of your kubeconfig (or --token-file FILE)", strings.Join(words, " "))
}
