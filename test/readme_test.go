package test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/test/daemon"
)

// TestReadmeTour types the README's tour into a shell.
func TestReadmeTour(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(blocks) < 5 {
		t.Fatalf("README.md has %d blocks of commands, want at least 5", len(blocks))
	}

	script := &strings.Builder{}
	script.WriteString("set -eu\npids=\ntrap 'kill $pids; wait' EXIT\n")
	for _, block := range blocks { // as it is pasted, but for what ends the background programs
		script.WriteString(strings.ReplaceAll(block[1], " &\n", " &\npids=\"$! $pids\"\n"))
	}
	text := strings.ReplaceAll(script.String(), "9443", freePort(t))

	shell := exec.Command("sh", "-c", text)
	shell.Dir = daemon.Dir(t)
	shell.Env = append(os.Environ(), "PATH="+programs(t)+":"+os.Getenv("PATH"))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	timer := time.AfterFunc(time.Minute, func() { syscall.Kill(-shell.Process.Pid, syscall.SIGTERM) })
	defer timer.Stop()
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"SOFTWARE TPM", "CN=alice,O=dev", "accepted", "without a certificate: exit code 1", "unbroken", "exit code 4: denied", "TSS2 PRIVATE KEY"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the tour does not show %q:\n%s", want, out)
		}
	}
}

// programs is the directory of the products.
func programs(t *testing.T) string {
	t.Helper()
	daemon.Program(t, daemon.AgentProgram)
	return filepath.Dir(daemon.Program(t, daemon.Tool))
}

// freePort returns a port of the loopback interface on which no process listens now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
