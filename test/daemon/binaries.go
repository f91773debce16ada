// Package daemon gives tests the real programs: built when the source has changed,
// and an agent and a broker process of its own for each test that wants one.
//
// Start at [Start] and [StartBroker], which return when the daemon answers, and
// at [Launch] and [LaunchBroker] for one that is not supposed to come up. Every
// process is ended by its id when its test ends, and by the kernel when the test
// process dies.
//
// Nothing here is a fake: what a test sees of a daemon is its socket, its
// standard error, its exit status and /proc.
package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A TB is what the package wants of a test. Every [testing.TB] is one.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// The programs that can be built, by the directories of their mains.
const (
	AgentProgram  = "agent/holdfast-agent"
	PIVProgram    = "piv/holdfast-piv"
	BrokerProgram = "client/holdfast-broker"
	PluginProgram = "client/holdfast-exec-plugin"
	Tool          = "client/holdfast"
)

// The products of this test process: copies that other uids can run. Each is built
// when first asked for.
var (
	directory = sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "holdfast-bin-")
		if err == nil {
			err = os.Chmod(dir, 0o755)
		}
		return dir, err
	})
	programs = map[string]func() (string, error){
		AgentProgram:  sync.OnceValues(func() (string, error) { return build(AgentProgram) }),
		PIVProgram:    sync.OnceValues(func() (string, error) { return build(PIVProgram) }),
		BrokerProgram: sync.OnceValues(func() (string, error) { return build(BrokerProgram) }),
		PluginProgram: sync.OnceValues(func() (string, error) { return build(PluginProgram) }),
		Tool:          sync.OnceValues(func() (string, error) { return build(Tool) }),
	}
)

// build makes a program as it is shipped: without the paths of this machine, and
// static but for the one that is linked with PC/SC. It links in the directory
// build/test/programs, where the next test process finds the result: the go command
// leaves a program alone that is up to date.
func build(program string) (string, error) {
	dir, err := directory()
	if err != nil {
		return "", err
	}
	source, err := Source()
	if err != nil {
		return "", err
	}
	shared := filepath.Join(source, "build", "test", "programs")
	unlock, err := lock(shared)
	if err != nil {
		return "", err
	}
	defer unlock()
	made := filepath.Join(shared, filepath.Base(program))
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", made, "./"+program)
	cmd.Dir = source
	cgo := "CGO_ENABLED=0"
	if program == PIVProgram {
		cgo = "CGO_ENABLED=1"
	}
	cmd.Env = append(os.Environ(), cgo)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", program, err, text)
	}
	// A process that this one forks meanwhile must not hold the copy open for
	// writing, so another process writes it.
	if text, err := exec.Command("cp", made, dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cp: %w\n%s", err, text)
	}
	return filepath.Join(dir, filepath.Base(program)), nil
}

// lock makes a directory and locks it until unlock is called.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { _ = f.Close() }, nil
}

// Source is the directory of the source: where the compiler says that this file
// is, or, in a build with -trimpath, where the go command finds the module.
func Source() (string, error) {
	if _, here, _, ok := runtime.Caller(0); ok && filepath.IsAbs(here) {
		return filepath.Join(filepath.Dir(here), "..", ".."), nil
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "holdfast").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m holdfast: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Program returns the path of a program, which it builds when no test has asked
// for it before.
func Program(tb TB, program string) string {
	tb.Helper()
	made, ok := programs[program]
	if !ok {
		tb.Fatalf("there is no program %s", program)
	}
	path, err := made()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return path
}

// Remove removes what was built; TestMain calls it last.
func Remove() {
	if dir, err := directory(); err == nil {
		_ = os.RemoveAll(dir)
	}
}
