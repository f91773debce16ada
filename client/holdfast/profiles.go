package main

import (
	"fmt"
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
func (o *profileOptions) complete(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return completing(profileNames).first(&kubeOptions{system: o.system})(cmd, args, word)
}

// oneProfile accepts a profile's name.
func oneProfile(cmd *cobra.Command, args []string) error {
	if err := arguments("PROFILE")(cmd, args); err != nil {
		return err
	}
	return usageError(profile.CheckName(args[0]))
}

// enrollHint is the command that gets a profile's key another certificate.
func enrollHint(p *profile.Profile, system bool) string {
	words := []string{"holdfast enroll kubernetes", p.Name, "--key", p.Key}
	if system {
		words = append(words, "--system")
	}
	return fmt.Sprintf("%s --context CONTEXT gets another, signed in by a context of your kubeconfig (or --token-file FILE)", strings.Join(words, " "))
}
