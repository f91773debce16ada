package main

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"holdfast/client/kubeconfig"
	"holdfast/client/profile"
)

// kubeOptions holds the options of every kubeconfig command.
type kubeOptions struct {
	file   string // --kubeconfig
	system bool   // the machine's profiles and broker
}

func (o *kubeOptions) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.file, "kubeconfig", "", "the kubeconfig `FILE` (default $KUBECONFIG, else ~/.kube/config)")
	cmd.Flags().BoolVar(&o.system, "system", false, "the machine's broker and profiles rather than the user's")
}

// load reads the kubeconfig files.
func (o *kubeOptions) load() (*kubeconfig.Config, error) {
	config, err := kubeconfig.Load(o.file)
	if err != nil {
		return nil, failf("--kubeconfig names the file", "%w", err)
	}
	return config, nil
}

// profiles reads the broker's profiles.
func (o *kubeOptions) profiles() (map[string]*profile.Profile, map[string]error, error) {
	return profile.Load(profile.Directory(o.system))
}

func (a *app) kubeconfigCommands() *cobra.Command {
	return a.group("kubeconfig", "have kubectl sign in with a key", "holdfast kubeconfig list",
		a.kubeconfigAdd(), a.kubeconfigList(), a.kubeconfigRemove(), a.kubeconfigCheck())
}

// completing is a list of names for the shell. It reports no errors: a completion has
// no place to show them.
type completing func(o *kubeOptions) []string

func contextNames(o *kubeOptions) []string {
	if config, err := kubeconfig.Load(o.file); err == nil {
		return slices.Sorted(maps.Keys(config.Contexts))
	}
	return nil
}

func profileNames(o *kubeOptions) []string {
	profiles, _, _ := o.profiles() // an error cannot be shown during completion
	return slices.Sorted(maps.Keys(profiles))
}

// first completes the one argument of a command.
func (names completing) first(o *kubeOptions) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(o), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeOption completes an option's value.
func completeOption(cmd *cobra.Command, option string, values cobra.CompletionFunc) {
	unplaced := func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return values(cmd, nil, word)
	}
	if err := cmd.RegisterFlagCompletionFunc(option, unplaced); err != nil {
		panic(err) // the option was never defined
	}
}

func (a *app) kubeconfigList() *cobra.Command {
	var o kubeOptions
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "list the broker's profiles, and the contexts that use them",
		Example: indent("holdfast kubeconfig list"),
		Args:    arguments(),
		RunE:    a.action(func(context.Context, []string) error { return a.listProfiles(&o) }),
	}
	o.register(cmd)
	a.jsonFlag(cmd)
	return cmd
}

// listed is a profile as `kubeconfig list` shows it.
type listed struct {
	Name     string   `json:"name"`
	Key      string   `json:"key,omitempty"`
	Modes    []string `json:"modes,omitempty"`
	Server   string   `json:"server,omitempty"`
	Contexts []string `json:"contexts"`
	Fault    string   `json:"fault,omitempty"`
}

func (a *app) listProfiles(o *kubeOptions) error {
	profiles, faults, err := o.profiles()
	if err != nil {
		return err
	}
	users := map[string][]string{} // the contexts of each profile
	if config, err := kubeconfig.Load(o.file); err == nil {
		users = contextsByProfile(config)
	} else if o.file != "" {
		return failf("--kubeconfig names the file", "%w", err)
	}
	list := []listed{}
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		p := profiles[name]
		list = append(list, listed{name, p.Key, p.Modes, p.Cluster.Server, append([]string{}, users[name]...), ""})
	}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		list = append(list, listed{Name: name, Contexts: append([]string{}, users[name]...), Fault: faults[name].Error()})
	}
	return a.show(list, func() error { return a.printProfiles(o, list) })
}

func (a *app) printProfiles(o *kubeOptions, list []listed) error {
	if len(list) == 0 {
		a.note("there is no profile in %s; holdfast kubeconfig add makes one", profile.Directory(o.system))
		return nil
	}
	rows := [][]string{{"PROFILE", "KEY", "MODES", "SERVER", "CONTEXTS"}}
	for _, l := range list {
		rows = append(rows, []string{l.Name, dash(l.Key), dash(words(l.Modes)), dash(l.Server), dash(words(l.Contexts))})
		if l.Fault != "" {
			a.note("%s", l.Fault)
		}
	}
	return table(a.stdout, rows...)
}
