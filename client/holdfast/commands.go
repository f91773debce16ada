package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// helpTemplate puts the example last, where it is easy to find.
const helpTemplate = `{{with or .Long .Short}}{{. | trimTrailingWhitespaces}}

{{end}}Usage:
  {{.UseLine}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Options:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Options of every command:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}

Example:
{{.Example}}
`

// commands returns the tree of commands.
func (a *app) commands() *cobra.Command {
	root := a.group("holdfast", "keys in the TPM or on a YubiKey, and the agent that signs with them", "holdfast status",
		a.keyCommands(), a.certificateCommands(), a.tlsCommands(),
		a.enrollCommands(), a.renewCommand(),
		a.unlockCommand(), a.lockCommand(), a.pivCommands(), a.kubeconfigCommands(),
		a.statusCommand(), a.doctorCommand(), a.policyCommands(), a.auditCommands(), a.metricsCommand(),
		a.completionCommand(), a.versionCommand(),
	)
	root.Long = `holdfast keeps private keys in this machine's TPM or on a YubiKey, and an agent
signs with them for the programs that its policy names. This command makes such
keys, gets certificates for them, tries them out, and explains the state of agent,
devices and policy.

Exit codes: 0 done, 1 failed, 2 usage, 3 no agent, 4 denied, 5 a user has to act
(PIN, touch, confirmation).`
	root.Version = readBuild().String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpTemplate(helpTemplate)
	root.SetFlagErrorFunc(badOption)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().StringVar(&a.socket, "socket", "", "the `PATH` of the agent's socket (default $HOLDFAST_SOCKET, else the user's or the machine's agent)")
	return root
}

// group returns a command that only leads to others.
func (a *app) group(name, short, example string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use: name + " COMMAND", Short: short, Example: indent(example),
		DisableFlagsInUseLine: true,
		Args:                  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			lists := cmd.CommandPath() + " --help lists the commands"
			if len(args) == 0 {
				return usagef(lists, "%s needs a command", cmd.CommandPath())
			}
			return usagef(didYouMean(args[0], commandNames(cmd), lists), "%s has no command %q", cmd.CommandPath(), args[0])
		},
	}
	group.AddCommand(commands...)
	return group
}

// complete has the shell complete an option's values from a list.
func complete[S ~string](cmd *cobra.Command, option string, values []S) {
	completeOption(cmd, option, cobra.FixedCompletions(texts(values), cobra.ShellCompDirectiveNoFileComp))
}

// indent indents an example for the help text.
func indent(lines string) string { return "  " + strings.ReplaceAll(lines, "\n", "\n  ") }

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "print a script that completes commands and key names in a shell",
		Long: `Prints a script for the named shell. It also completes names of keys when an agent
answers.`,
		Example:   indent("holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast"),
		Args:      arguments("SHELL"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			a.running = true
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(a.stdout)
			case "fish":
				return cmd.Root().GenFishCompletion(a.stdout, true)
			}
			return usagef("one of bash, zsh, fish", "there is no completion for %q", args[0])
		},
	}
}
