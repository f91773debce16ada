package test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A pack is what `go list` says about a package.
type pack struct {
	ImportPath string
	Name       string
	Dir        string
	Standard   bool
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
	Deps       []string
	Module     *struct {
		Path     string
		Main     bool
		Indirect bool
	}
}

// ours reports whether the package belongs to this module.
func (p pack) ours() bool { return p.Module != nil && p.Module.Main }

// room is the package's path inside this module; other packages keep theirs.
func (p pack) room() string { return short(p.ImportPath) }

func short(path string) string { return strings.TrimPrefix(path, module+"/") }

// product reports whether the package is the main of something users run.
func (p pack) product() bool {
	return p.ours() && p.Name == "main" && !matches("test/...", p.room())
}

// packages lists the module's packages and everything they depend on, tests
// left out.
func packages(t *testing.T) []pack {
	t.Helper()
	list := exec.Command("go", "list", "-deps",
		"-json=ImportPath,Name,Dir,Standard,GoFiles,CgoFiles,Imports,Deps,Module", "./...")
	list.Dir, list.Env = root(t), append(os.Environ(), "CGO_ENABLED=1")
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var graph []pack
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pack
		if err := decoder.Decode(&p); err == io.EOF {
			return graph
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		graph = append(graph, p)
	}
}

// root is the module's directory.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("the module's root: %v", err)
	}
	return dir
}
