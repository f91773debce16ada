package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
)

func (a *app) keyCommands() *cobra.Command {
	return a.group("key", "make, list, move and delete keys", "holdfast key create alice --purpose tls-client",
		a.keyCreate(), a.keyList(), a.keyShow(), a.keyDelete(), a.keyExport(), a.keyAdopt())
}

// completeKeys completes the names of keys in the shell.
func (a *app) completeKeys(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	c, err := client.Dial(cmd.Context(), &client.Options{Socket: a.socket, Timeout: time.Second})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	list, _ := c.Keys(cmd.Context(), false) // an error cannot be shown during completion
	names := make([]string, len(list))
	for i, k := range list {
		names[i] = k.Name + "\t" + k.Purpose
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) keyList() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "list the keys that you may see",
		Example: indent("holdfast key list"),
		Args:    arguments(),
		RunE: a.asking(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.Keys(ctx, all)
			if err != nil {
				return err
			}
			return a.show(list, func() error { return a.printKeys(list, a.softwareDevices(ctx, c)) })
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "keys of all users, as far as you may see them")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) keyShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME", Short: "show a key",
		Example: indent("holdfast key show alice"),
		Args:    oneKey(), ValidArgsFunction: a.completeKeys,
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			k, err := c.GetKey(ctx, args[0])
			if err != nil {
				return err
			}
			return a.showKey(ctx, c, k)
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

// showKey prints one key, as JSON or as a table.
func (a *app) showKey(ctx context.Context, c *client.Client, k agentwire.Key) error {
	return a.show(k, func() error { return a.printKey(k, a.softwareDevices(ctx, c)) })
}

func (a *app) keyDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "delete a key; this cannot be undone",
		Long: `Deletes a key. No copy of it exists, so this cannot be undone. A key on a card stays
in its slot, but the agent no longer uses it.`,
		Example: indent("holdfast key delete alice --yes"),
		Args:    oneKey(), ValidArgsFunction: a.completeKeys,
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			k, _ := c.GetKey(ctx, args[0]) // else the deletion has the error
			if !yes {
				if err := a.confirm(ctx, deletion(args[0], k.Place), "--yes says it on the command line"); err != nil {
					return err
				}
			}
			err := c.DeleteKey(ctx, args[0])
			if err == nil && k.Place != nil {
				a.note("slot %s of card %d keeps the key, which other programs may use with the card's PIN, until it is overwritten", k.Place.Slot, k.Place.Card)
			}
			if err != nil || !a.asJSON {
				return err
			}
			return a.json(deletedKey{args[0]})
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	a.jsonFlag(cmd)
	return cmd
}

// deletedKey is the JSON form of `key delete`.
type deletedKey struct {
	Deleted string `json:"deleted"`
}

// deletion asks whether a key is to be deleted.
func deletion(name string, at *agentwire.Place) string {
	if at != nil {
		return fmt.Sprintf("Delete key %s? The agent forgets it; it stays in slot %s of card %d until it is overwritten.", name, at.Slot, at.Card)
	}
	return fmt.Sprintf("Delete key %s? There is no copy of it anywhere.", name)
}

func (a *app) keyExport() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "export NAME", Short: "print a key in its device's own file format",
		Long: `Prints a key in the TPM as a TSS2 PRIVATE KEY (PEM), which tpm2-openssl and other
programs read; for a key on a card it prints the card and the slot. The file is of
no use without this machine's TPM, or the card.`,
		Example: indent("holdfast key export alice -o alice.tss2.pem"),
		Args:    oneKey(), ValidArgsFunction: a.completeKeys,
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			file, err := c.ExportKey(ctx, args[0])
			if err != nil {
				return err
			}
			return a.write(out, []byte(file), 0o600)
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to this `FILE` instead of stdout")
	return cmd
}

// noDefault keeps a default that means "not given" out of the help text.
func noDefault(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		cmd.Flags().Lookup(name).DefValue = "0"
	}
}

// write writes to a file, or to stdout when it is called "" or "-".
func (a *app) write(name string, data []byte, mode os.FileMode) error {
	if name == "" || name == "-" {
		_, err := a.stdout.Write(data)
		return err
	}
	if err := os.WriteFile(name, data, mode); err != nil {
		return failf("name a file in a directory that you may write to, or leave -o out for stdout", "%w", err)
	}
	return nil
}

// maxInput is the size of the largest file that is read, in bytes: more does not
// fit into one message to the agent.
const maxInput = 128 << 10

// read reads a file, or stdin when it is called "-".
func (a *app) read(name string) ([]byte, error) {
	from := a.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, failf("name a file that exists and that you may read, or - for stdin", "%w", err)
		}
		defer f.Close()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	if err == nil && len(data) > maxInput {
		err = failf("", "%s is longer than %d bytes", inputName(name), maxInput)
	}
	return data, err
}

// inputName returns the name of the input of read, for messages.
func inputName(name string) string {
	if name == "-" {
		return "stdin"
	}
	return name
}

// words joins a list of named values, for help texts.
func words[S ~string](list []S) string { return strings.Join(texts(list), ", ") }

func texts[S ~string](list []S) []string {
	all := make([]string, len(list))
	for i, s := range list {
		all[i] = string(s)
	}
	return all
}
