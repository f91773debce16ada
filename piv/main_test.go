package piv_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// program is the real holdfast-piv, built once for all tests.
var program string

func TestMain(m *testing.M) {
	if name := filepath.Base(os.Args[0]); strings.HasPrefix(name, scriptPrefix) {
		os.Exit(runScripted(os.Args[0]))
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "holdfast-piv-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "holdfast-piv")
		build := exec.Command("go", "build", "-o", program, "./holdfast-piv")
		build.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		code := m.Run()
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}
