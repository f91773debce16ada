package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what the binary knows of itself.
type build struct {
	Version  string   `json:"version"`          // of the module, "(devel)" between releases
	Commit   string   `json:"commit,omitempty"` // empty when built outside a checkout
	Modified bool     `json:"modified"`         // the checkout had changes of its own
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Backends []string `json:"backends"` // compiled in: none, they are the agent's
}

func readBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Backends: []string{}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b build) String() string {
	commit := b.Commit
	switch {
	case commit == "":
		commit = "unknown"
	case b.Modified:
		commit += " with changes"
	}
	return fmt.Sprintf("holdfast %s\ncommit   %s\ngo       %s %s\nbackends none in this program; holdfast-agent --version lists the agent's",
		b.Version, commit, b.Go, b.Platform)
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "show the commit, the Go version and the backends of this program",
		Example: indent("holdfast version"),
		Args:    cobra.NoArgs,
		RunE: a.action(func(context.Context, []string) error {
			if asJSON {
				return a.json(readBuild())
			}
			fmt.Fprintln(a.stdout, readBuild())
			return nil
		}),
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
