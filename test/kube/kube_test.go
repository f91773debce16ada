package kube_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"holdfast/test/kube"
)

func TestMain(m *testing.M) {
	// A client that is no longer used keeps its connections for a while.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"))
}

// The plane by itself, before anything of holdfast's comes in.
func TestPlane(t *testing.T) {
	p := kube.Start(t, kube.Options{Controllers: true})
	t.Run("whoami", func(t *testing.T) {
		out, err := p.Administer("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
		if err != nil || out != "admin" {
			t.Fatalf("whoami: %q, %v", out, err)
		}
	})
	t.Run("user", func(t *testing.T) {
		kubeconfig, err := p.Kubeconfig("alice", kube.User{Name: "alice", Groups: []string{"dev"}})
		if err != nil {
			t.Fatal(err)
		}
		out, err := p.Kubectl(kubeconfig, "get", "namespaces").CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte(`User "alice" cannot list resource "namespaces"`)) {
			t.Fatalf("get namespaces as alice: %v\n%s", err, out)
		}
	})
	t.Run("node", func(t *testing.T) { checkNode(t, p) })
	t.Run("restart", func(t *testing.T) {
		p.StopAPIServer()
		if _, err := p.Administer("get", "namespaces"); err == nil {
			t.Fatal("a stopped API server answers")
		}
		if err := p.StartAPIServer(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Administer("get", "pod", "web"); err != nil {
			t.Fatalf("after a restart: %v", err)
		}
	})
}

// checkNode runs every kubectl command that ends at a kubelet.
func checkNode(t *testing.T, p *kube.Plane) {
	node, err := p.NewNode("node-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Close)
	pod, err := node.NewPod("web")
	if err != nil {
		t.Fatal(err)
	}
	pod.Log("first line")
	if out, err := p.Administer("logs", "web"); err != nil || out != "first line\n" {
		t.Errorf("logs: %q, %v", out, err)
	}
	for _, websocket := range []string{"true", "false"} {
		run := func(stdin string, args ...string) (string, error) {
			cmd := p.Kubectl(p.Admin, args...)
			cmd.Env = append(cmd.Env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websocket, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websocket)
			cmd.Stdin = strings.NewReader(stdin)
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		if out, err := run("in\n", "exec", "-i", "web", "--", "sh", "-c", "cat; echo out; echo err >&2"); err != nil || !strings.Contains(out, "in\n") || !strings.Contains(out, "out\n") || !strings.Contains(out, "err\n") {
			t.Errorf("exec: %q, %v", out, err)
		}
		out, err := run("", "exec", "web", "--", "sh", "-c", "exit 7")
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 7 {
			t.Errorf("exec exit 7: %q, %v", out, err)
		}
		if out, err := run("hello\n", "attach", "-i", "-q", "web"); err != nil || !strings.Contains(out, "attached\nhello\n") {
			t.Errorf("attach: %q, %v", out, err)
		}
		checkCopy(t, pod, run)
		checkForward(t, p, websocket)
	}
}

func checkCopy(t *testing.T, pod *kube.Pod, run func(string, ...string) (string, error)) {
	from := filepath.Join(t.TempDir(), "file")
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	if err := os.WriteFile(from, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run("", "cp", from, "web:"+filepath.Join(pod.Dir, "copy")); err != nil {
		t.Fatalf("cp there: %v\n%s", err, out)
	}
	back := from + ".back"
	if out, err := run("", "cp", "web:"+filepath.Join(pod.Dir, "copy"), back); err != nil {
		t.Fatalf("cp back: %v\n%s", err, out)
	}
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, want) {
		t.Errorf("cp there and back: %d bytes, want %d; %v", len(got), len(want), err)
	}
}

func checkForward(t *testing.T, p *kube.Plane, websocket string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	cmd := p.Kubectl(p.Admin, "port-forward", "web", ":"+port, "--address", "127.0.0.1")
	cmd.Env = append(cmd.Env, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websocket)
	log := filepath.Join(t.TempDir(), "log")
	process, err := kube.Run("port-forward", log, cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer process.Kill()
	address := process.Await(t, "Forwarding from ", " ")
	answer, err := http.Get("http://" + address)
	if err != nil {
		t.Fatalf("through port-forward: %v\n%s", err, process.Log())
	}
	defer func() { _ = answer.Body.Close() }()
	if body, err := io.ReadAll(answer.Body); string(body) != "served" {
		t.Errorf("through port-forward: %q, %v", body, err)
	}
}
