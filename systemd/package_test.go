package systemd_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A packed file is one line of the package's contents.
type packed struct {
	Src, Dst string
	Info     fileInfo `yaml:"file_info"`
}

type fileInfo struct{ Mode os.FileMode }

// packages is what nfpm.yaml says.
type packages struct {
	Depends, Recommends, Suggests []string
	Contents                      []packed
}

func readPackages(t *testing.T) packages {
	t.Helper()
	text, err := os.ReadFile("../packaging/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var p packages
	if err := yaml.Unmarshal(text, &p); err != nil || len(p.Contents) == 0 {
		t.Fatalf("nfpm.yaml: %d files, %v", len(p.Contents), err)
	}
	return p
}

// The parts of the package for cards are where the agent, its unit and polkit look
// for them, and all that the package takes from the source is there.
func TestPackage(t *testing.T) {
	p := readPackages(t)
	installed := map[string]packed{}
	for _, f := range p.Contents {
		installed[f.Dst] = f
		found, err := filepath.Glob(filepath.Join("..", f.Src))
		if made := strings.HasPrefix(f.Src, "build/"); !made && (err != nil || len(found) == 0) {
			t.Errorf("%s: there is no %s", f.Dst, f.Src)
		}
	}
	for dst, want := range map[string]packed{
		"/usr/libexec/holdfast/holdfast-piv":            {Src: "build/bin/holdfast-piv", Info: fileInfo{0o755}},
		"/usr/share/polkit-1/rules.d/holdfast.rules":    {Src: "packaging/polkit/holdfast.rules", Info: fileInfo{0o644}},
		"/usr/share/holdfast/io.holdfast.Agent.varlink": {Src: "internal/agentwire/io.holdfast.Agent.varlink", Info: fileInfo{0o644}},
	} {
		if got := installed[dst]; got.Src != want.Src || got.Info != want.Info {
			t.Errorf("%s: from %q with mode %v, want %q with %v", dst, got.Src, got.Info.Mode, want.Src, want.Info.Mode)
		}
	}
	start := strings.Fields(settings(t, "system/holdfast-agent.service")["ExecPaths"][0])
	for _, path := range start {
		if path = strings.TrimPrefix(path, "-"); installed[path].Src == "" {
			t.Errorf("the agent's unit lets it execute %s, which the package does not install", path)
		}
	}
	if len(start) != 2 {
		t.Errorf("the agent's unit starts from %q, want the agent and its child", start)
	}
}

// A user without a card needs no pcscd: the package works without it.
func TestPackageNeedsNothingForCards(t *testing.T) {
	p := readPackages(t)
	if len(p.Depends) > 0 {
		t.Errorf("the package depends on %q", p.Depends)
	}
	for _, name := range []string{"libpcsclite1", "pcscd", "pinentry-curses | pinentry"} {
		if !slices.Contains(p.Recommends, name) {
			t.Errorf("%s is not recommended: %q", name, p.Recommends)
		}
	}
}
