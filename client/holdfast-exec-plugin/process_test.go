package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/client/execcredential"
	"holdfast/internal/varlink"
	"holdfast/test/daemon"
)

// someone is a uid that no user has.
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

// ofTheRuntime matches the files that the Go runtime reads when a program starts. It
// opens them read-only.
var ofTheRuntime = regexp.MustCompile(`^openat\(AT_FDCWD, "(/sys/kernel/mm/transparent_hugepage/hpage_pmd_size|/proc/self/(maps|cgroup|mountinfo)|/sys/fs/cgroup/[^"]*)", O_RDONLY`)

// Whatever the environment and the kubeconfig say, the kernel sees it open nothing
// but the broker's socket. strace(1) tells.
func TestOpensTheSocketAlone(t *testing.T) {
	b := answering(t, "", give)
	trace := filepath.Join(t.TempDir(), "trace")
	hostile := strings.Replace(info, `"tls-server-name":"api"`, `"tls-server-name":"api","proxy-url":"http://127.0.0.1:1","certificate-authority":"/etc/passwd"`, 1)
	plugin := command(t, []string{
		execcredential.Variable + "=" + hostile, "HOME=/root", "KUBECONFIG=/etc/passwd", "HOLDFAST_SOCKET=/nowhere/agent.sock", "LD_PRELOAD=/nowhere.so",
		"SSL_CERT_FILE=/etc/passwd", "HTTPS_PROXY=http://127.0.0.1:1", "TPM2TOOLS_TCTI=swtpm", "TMPDIR=/tmp", "TZ=Europe/Berlin",
	}, "--profile", "p", "--socket", b.socket)
	cmd := exec.Command("strace", append([]string{"-f", "-qq", "-e", "signal=none", "-e", "trace=%file,%network", "-o", trace}, plugin.Args...)...)
	cmd.Env = append(plugin.Env, "PATH="+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("strace: %v: %s", err, out)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	connected := false
	for line := range strings.Lines(string(text)) {
		_, call, _ := strings.Cut(strings.TrimSpace(line), " ")
		call = strings.TrimSpace(call)
		switch name, _, _ := strings.Cut(call, "("); {
		case name == "connect" && strings.Contains(call, `sun_path="`+b.socket+`"`):
			connected = true
		case name == "execve", name == "getsockname", name == "getpeername", name == "getsockopt", name == "setsockopt",
			name == "socket" && strings.HasPrefix(call, "socket(AF_UNIX,"),
			name == "newfstatat" && strings.HasPrefix(call, `newfstatat(AT_FDCWD, "`+filepath.Dir(b.socket)),
			ofTheRuntime.MatchString(call):
		default:
			t.Errorf("it called %s", call)
		}
	}
	if !connected {
		t.Errorf("it did not connect:\n%s", text)
	}
}

// While the plugin waits, no process of its uid can read its memory, and it leaves no
// core file.
// A broker that hangs costs the user ten seconds and no more.
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
	case <-time.After(timeout):
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
