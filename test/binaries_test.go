package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// maxModules is how many modules that go.mod names may be linked into what users
// run. Each one is somebody else's code next to the keys.
const maxModules = 14

// card is the one product that needs a C compiler: the child process that talks
// to smart cards.
const card = "piv/holdfast-piv"

// TestProductsAreStatic builds every other binary without one.
func TestProductsAreStatic(t *testing.T) {
	for _, p := range packages(t) {
		if p.ours() && len(p.CgoFiles) > 0 && p.room() != card {
			t.Errorf("%s has cgo in %v; only %s may", p.room(), p.CgoFiles, card)
		}
	}
	binaries(t)
}

// build is the directory that binaries fills once.
var build struct {
	sync.Once
	dir string
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(build.dir)
	os.Exit(code)
}

// binaries builds the products without cgo, once, and returns their directory.
func binaries(t *testing.T) string {
	t.Helper()
	build.Do(func() {
		if build.dir, build.err = os.MkdirTemp("", "hfbin"); build.err != nil {
			return
		}
		args := []string{"build", "-trimpath", "-o", build.dir + "/"}
		for _, p := range packages(t) {
			if p.product() && p.room() != card {
				args = append(args, p.ImportPath)
			}
		}
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = root(t), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("go build without cgo: %w\n%s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.dir
}

// TestMakefileBuildsEveryProduct compares the mains with the Makefile's list.
func TestMakefileBuildsEveryProduct(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "\nBINARIES = ")
	list, _, _ = strings.Cut(list, "\n")
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
		t.Errorf("Makefile's BINARIES are %v, want %v", got, mains)
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
