package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the build: -ldflags "-X main.version=v0.1.0".
var version string

// build holds the build information of the binary.
type build struct {
	Version  string   `json:"version"` // of the release or, between releases, the commit
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Backends []string `json:"backends"` // compiled in: none, they are the agent's
}

func readBuild() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Backends: []string{}}
	if info, ok := debug.ReadBuildInfo(); ok && b.Version == "" {
		b.Version = info.Main.Version
	}
	return b
}

func (b build) String() string {
	return fmt.Sprintf("holdfast %s\ngo       %s %s\nbackends none in this program; holdfast-agent --version lists the agent's",
		b.Version, b.Go, b.Platform)
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "show the commit, the Go version and the backends of this program",
		Example: indent("holdfast version"),
		Args:    arguments(),
		RunE: a.action(func(context.Context, []string) error {
			return a.show(readBuild(), func() error {
				_, err := fmt.Fprintln(a.stdout, readBuild())
				return err
			})
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}
