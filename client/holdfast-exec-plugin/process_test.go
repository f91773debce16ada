package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/client/execcredential"
	"holdfast/client/varlink"
	"holdfast/test/daemon"
)

// someone is a uid that nobody has.
const someone = 4711

func ownerOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// command is the real program, with an environment of these variables alone.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(daemon.Program(t, "client/holdfast-exec-plugin"), args...)
	cmd.Env = env
	return cmd
}

// The environment that kubectl has under env -i, and standard input closed or
// full of something that is not the plugin's to read.
func TestBareEnvironment(t *testing.T) {
	b := answering(t, "", give)
	for _, stdin := range []string{"", "apiVersion: v1\n"} {
		cmd := command(t, []string{execcredential.Variable + "=" + info}, "--profile", "p", "--socket", b.socket)
		var in *bytes.Reader
		if stdin != "" {
			in = bytes.NewReader([]byte(stdin))
			cmd.Stdin = in
		}
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), "the-ticket") {
			t.Errorf("stdin %q: got %s, %v", stdin, out, err)
		}
	}
	closed := command(t, []string{execcredential.Variable + "=" + info, "SOCKET=" + b.socket}, "")
	closed.Path, closed.Args = "/bin/sh", []string{"sh", "-c", closed.Path + ` --profile p --socket "$SOCKET" <&-`}
	if out, err := closed.CombinedOutput(); err != nil {
		t.Errorf("closed stdin: %v: %s", err, out)
	}
}

// The socket of the usual variable, and loaders' and simulators' variables that
// change nothing.
func TestEnvironment(t *testing.T) {
	b := answering(t, "", give)
	cmd := command(t, []string{
		execcredential.Variable + "=" + info, "HOLDFAST_BROKER_SOCKET=" + b.socket, "HOLDFAST_SOCKET=/nowhere", "LD_PRELOAD=/nowhere.so", "KUBECONFIG=/nowhere",
		"HTTPS_PROXY=http://evil", "GODEBUG=netdns=cgo",
	}, "--profile", "p")
	if out, err := cmd.Output(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// While it waits, nobody of its uid can read its memory, and it leaves no core.
// Then a broker that hangs costs the person ten seconds and no more.
func TestHungBroker(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	dir := daemon.Dir(t)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	b := answering(t, filepath.Join(dir, "broker.sock"), func(call *varlink.Call, _ int64) error {
		close(asked)
		<-release
		return context.Canceled
	})
	defer close(release)
	cmd := command(t, []string{execcredential.Variable + "=" + info}, "--profile", "p", "--socket", b.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: someone, Gid: someone}}
	if err := os.Chmod(b.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	started := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked:
	case <-time.After(patience):
		t.Fatalf("it did not ask: %s", &stderr)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", cmd.Process.Pid))
	if err != nil || !strings.Contains(string(limits), "Max core file size        0                    0") {
		t.Errorf("limits %s, %v", limits, err)
	}
	// The kernel gives what is in /proc/PID of a process that cannot be dumped to root.
	if uid := ownerOf(t, fmt.Sprintf("/proc/%d/mem", cmd.Process.Pid)); uid != 0 {
		t.Errorf("the memory of the process belongs to uid %d", uid)
	}
	err = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitUnreachable || stdout.Len() != 0 || !strings.Contains(stderr.String(), "no answer within 10 s") {
		t.Errorf("exit %d (%v), %q, %q", code, err, &stdout, &stderr)
	}
	if d := time.Since(started); d < 9*time.Second || d > 20*time.Second {
		t.Errorf("it took %s", d)
	}
}
