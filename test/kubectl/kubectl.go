// Package kubectl finds a stock kubectl for tests that let it judge what we
// write. Start at [Path].
package kubectl

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"holdfast/test/daemon"
)

// found runs test/kube/build once: it builds kubectl where that was not done before,
// which takes minutes.
var found = sync.OnceValues(func() (string, error) {
	source, err := daemon.Source()
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(source, "test", "kube", "build"), "kubectl")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", &exec.Error{Name: cmd.Path + ": " + stderr.String(), Err: err}
	}
	return filepath.Join(strings.TrimSpace(string(out)), "kubectl"), nil
})

// Path returns the path of kubectl, of the version that test/kube/go.mod names. A
// test without one fails.
func Path(tb daemon.TB) string {
	tb.Helper()
	path, err := found()
	if err != nil {
		tb.Fatalf("kubectl: %v", err)
	}
	return path
}
