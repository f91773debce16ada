package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxModules is how many modules that go.mod names may be linked into what users
// run. Each one is foreign code next to the keys.
const maxModules = 14

// card is the one product that needs a C compiler: the child process that talks
// to smart cards.
const card = "piv/holdfast-piv"

// TestProductsAreStatic builds every other binary without one.
func TestProductsAreStatic(t *testing.T) {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", t.TempDir() + "/"}
	for _, p := range packages(t) {
		if p.ours() && len(p.CgoFiles) > 0 && !matches(card+"/...", p.room()) {
			t.Errorf("%s has cgo in %v; only %s may", p.room(), p.CgoFiles, card)
		}
		if p.product() && p.room() != card {
			args = append(args, p.ImportPath)
		}
	}
	build := exec.Command("go", args...)
	build.Dir, build.Env = root(t), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("go build without cgo: %v\n%s", err, out)
	}
}

// TestMakefileBuildsEveryProduct compares the mains with the Makefile's lists.
func TestMakefileBuildsEveryProduct(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	list := ""
	for _, variable := range []string{"BINARIES", "PIV     "} {
		_, value, _ := strings.Cut(string(text), "\n"+variable+" = ")
		value, _, _ = strings.Cut(value, "\n")
		list += " " + value
	}
	var mains []string
	for _, p := range packages(t) {
		if p.product() {
			mains = append(mains, "./"+p.room())
		}
	}
	got := strings.Fields(list)
	slices.Sort(got)
	slices.Sort(mains)
	if !slices.Equal(got, mains) {
		t.Errorf("Makefile's BINARIES and PIV are %v, want %v", got, mains)
	}
}

// TestModulesInProducts counts the modules of go.mod that end up in a binary.
func TestModulesInProducts(t *testing.T) {
	got := linked(packages(t))
	if len(got) == 0 {
		t.Fatal("no module is linked into any product: the count is wrong")
	}
	if len(got) > maxModules {
		t.Errorf("%d direct modules are linked into products, want at most %d: %v", len(got), maxModules, got)
	}
}

// linked returns the direct modules that the product binaries hold, sorted.
func linked(graph []pack) []string {
	byPath := map[string]pack{}
	for _, p := range graph {
		byPath[p.ImportPath] = p
	}
	var modules []string
	for _, p := range graph {
		if !p.product() {
			continue
		}
		for _, path := range p.Deps {
			if m := byPath[path].Module; m != nil && !m.Main && !m.Indirect {
				modules = append(modules, m.Path)
			}
		}
	}
	slices.Sort(modules)
	return slices.Compact(modules)
}
