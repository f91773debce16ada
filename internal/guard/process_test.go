package guard

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const childVariable = "HOLDFAST_TEST_HARDENED"

// TestMain is the hardened process when it is told to: nothing of this can be
// taken back.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

func child(dir string) int {
	runtime.LockOSThread() // with cgo one thread alone is told
	if err := HardenProcess(); err != nil {
		println(err.Error())
		return 1
	}
	dumpable, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	privileges, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	var core unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_CORE, &core)
	if dumpable != 0 || privileges != 1 || core.Cur != 0 || core.Max != 0 {
		println("dumpable", dumpable, "no new privileges", privileges, "core", core.Cur, core.Max)
		return 1
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o666); err != nil {
		println(err.Error())
		return 1
	}
	return 0
}

func TestProcess(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+dir)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, strings.TrimSpace(string(text)))
	}
	info, err := os.Stat(filepath.Join(dir, "f"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a new file has mode %v (%v), want 0600", info.Mode(), err)
	}
}
