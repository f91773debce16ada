package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"holdfast/client/profile"
	"holdfast/test/daemon"
	"holdfast/test/kube"
)

// kubectls are the kubectl of the plane's version and any other on PATH.
func kubectls(r *rig) map[string]string {
	found := map[string]string{"stock": r.plane.Program("kubectl")}
	if other, err := exec.LookPath("kubectl"); err == nil {
		found["on PATH"] = other
	}
	return found
}

// The usual commands of kubectl, in mode proxy.
func TestProxy(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice)
	kubeconfig := r.kubeconfig(t, profile.ModeProxy)
	for name, program := range kubectls(r) {
		t.Run("whoami, kubectl "+name, func(t *testing.T) {
			cmd := r.plane.KubectlOf(program, kubeconfig, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}")
			cmd.Env = append(cmd.Env, r.environ...)
			if got, want := must(t, cmd), `alice ["dev","system:authenticated"]`; got != want {
				t.Errorf("whoami: %s, want %s", got, want)
			}
		})
	}
	t.Run("get", func(t *testing.T) {
		if got := must(t, r.kubectl(kubeconfig, "get", "namespaces", "-o", "name")); !strings.Contains(got, "namespace/kube-system\n") {
			t.Errorf("get namespaces: %s", got)
		}
	})
	t.Run("watch", func(t *testing.T) { checkWatch(t, r, kubeconfig) })
	t.Run("apply from stdin", func(t *testing.T) { checkApply(t, r, kubeconfig) })
	t.Run("big bodies", func(t *testing.T) { checkBigBodies(t, r, kubeconfig) })
	t.Run("api errors", func(t *testing.T) {
		o := run(r.kubectl(kubeconfig, "get", "configmap", "not-there"))
		if want := "Error from server (NotFound): configmaps \"not-there\" not found\n"; o.code != 1 || o.stderr != want {
			t.Errorf("get a configmap that is not there: exit %d, %q, want %q", o.code, o.stderr, want)
		}
	})
}

func checkWatch(t *testing.T, r *rig, kubeconfig string) {
	watch := background(t, "watch", r.kubectl(kubeconfig, "get", "configmaps", "--watch", "-o", "name"))
	watch.Await(t, "kube-root-ca.crt", "\n")
	for i := range 3 {
		name := fmt.Sprintf("watched-%d", i)
		must(t, r.kubectl(kubeconfig, "create", "configmap", name))
		watch.Await(t, name, "\n")
		must(t, r.kubectl(kubeconfig, "delete", "configmap", name))
	}
}

// spec.interactive and a manifest on standard input: the plugin reads none of it.
func checkApply(t *testing.T, r *rig, kubeconfig string) {
	text := strings.Repeat("every byte counts: \t\"'\\ é 世界\n", 2000)
	manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"},"data":{"text":%q}}`, text)
	config := r.config(t, profile.ModeProxy)
	for _, interactive := range []clientcmdapi.ExecInteractiveMode{clientcmdapi.NeverExecInteractiveMode, clientcmdapi.IfAvailableExecInteractiveMode} {
		config.AuthInfos["test"].Exec.InteractiveMode = interactive
		cmd := r.kubectl(r.write(t, config), "apply", "--server-side", "-f", "-")
		cmd.Stdin = strings.NewReader(manifest)
		must(t, cmd)
		got := must(t, r.kubectl(kubeconfig, "get", "configmap", "applied", "-o", "jsonpath={.data.text}"))
		if got != text {
			t.Errorf("interactiveMode %s: applied %d bytes, want %d", interactive, len(got), len(text))
		}
		must(t, r.kubectl(kubeconfig, "delete", "configmap", "applied"))
	}
}

// A megabyte is what etcd takes in one object; a list is as long as it gets.
func checkBigBodies(t *testing.T, r *rig, kubeconfig string) {
	random := rand.NewChaCha8([32]byte{1})
	raw := make([]byte, 450<<10)
	var sums []string
	for i := range 12 {
		_, _ = random.Read(raw)
		text := hex.EncodeToString(raw) // 900 KiB
		file := filepath.Join(t.TempDir(), "text")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		must(t, r.kubectl(kubeconfig, "create", "configmap", fmt.Sprintf("big-%02d", i), "--from-file", file))
		sums = append(sums, fmt.Sprintf("%x", sha256.Sum256([]byte(text))))
	}
	list := must(t, r.kubectl(kubeconfig, "get", "configmaps", "-o", `jsonpath={range .items[?(@.data.text)]}{.data.text}{"\n"}{end}`))
	var got []string
	for line := range strings.Lines(list) {
		got = append(got, fmt.Sprintf("%x", sha256.Sum256([]byte(strings.TrimSuffix(line, "\n")))))
	}
	if !slices.Equal(got, sums) {
		t.Errorf("a list of 12 big objects came back as %d bytes in %d lines, or changed", len(list), len(got))
	}
	for i := range 12 {
		_ = r.plane.Client().CoreV1().ConfigMaps("default").Delete(context.Background(), fmt.Sprintf("big-%02d", i), metav1.DeleteOptions{})
	}
}

// Streams that end at a kubelet: upgrades over WebSocket and SPDY.
func TestProxyStreams(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice)
	kubeconfig := r.kubeconfig(t, profile.ModeProxy)
	n := r.plane.StartNode(t, "streams")
	pod := n.StartPod(t, "streams")
	t.Run("logs -f", func(t *testing.T) {
		pod.Log("before")
		logs := background(t, "logs", r.kubectl(kubeconfig, "logs", "-f", pod.Name))
		logs.Await(t, "before", "\n")
		for i := range 3 {
			pod.Log(fmt.Sprintf("after-%d", i))
			logs.Await(t, fmt.Sprintf("after-%d", i), "\n")
		}
	})
	for _, protocol := range []string{"websocket", "spdy"} {
		kubectl := func(args ...string) *exec.Cmd {
			cmd := r.kubectl(kubeconfig, args...)
			on := fmt.Sprint(protocol == "websocket")
			cmd.Env = append(cmd.Env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+on, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+on)
			return cmd
		}
		t.Run("exec "+protocol, func(t *testing.T) { checkExec(t, pod, kubectl) })
		t.Run("attach "+protocol, func(t *testing.T) {
			cmd := kubectl("attach", "-i", "-q", pod.Name)
			cmd.Stdin = strings.NewReader("hello\n")
			if got := must(t, cmd); !strings.Contains(got, "attached\nhello\n") {
				t.Errorf("attach: %q", got)
			}
		})
		t.Run("cp "+protocol, func(t *testing.T) { checkCopy(t, pod, kubectl) })
		t.Run("port-forward "+protocol, func(t *testing.T) { checkForward(t, pod, kubectl) })
	}
}

func checkExec(t *testing.T, pod *kube.Pod, kubectl func(...string) *exec.Cmd) {
	cmd := kubectl("exec", "-i", pod.Name, "--", "sh", "-c", "cat; echo error >&2; exit 7")
	cmd.Stdin = strings.NewReader("a line\n")
	if o := run(cmd); o.code != 7 || o.stdout != "a line\n" || !strings.Contains(o.stderr, "error\n") {
		t.Errorf("exec: %+v", o)
	}
	text := bytes.Repeat([]byte("0123456789abcde\n"), 1<<19) // 8 MiB there and back
	cmd = kubectl("exec", "-i", pod.Name, "--", "cat")
	cmd.Stdin = bytes.NewReader(text)
	if got := must(t, cmd); got != string(text) {
		t.Errorf("exec cat gave back %d bytes, want %d", len(got), len(text))
	}
}

func checkCopy(t *testing.T, pod *kube.Pod, kubectl func(...string) *exec.Cmd) {
	from, there := filepath.Join(t.TempDir(), "file"), filepath.Join(pod.Dir, "file")
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if err := os.WriteFile(from, want, 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, kubectl("cp", from, pod.Name+":"+there))
	must(t, kubectl("cp", pod.Name+":"+there, from+".back"))
	if got, err := os.ReadFile(from + ".back"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("cp there and back: %d bytes, want %d; %v", len(got), len(want), err)
	}
}

func checkForward(t *testing.T, pod *kube.Pod, kubectl func(...string) *exec.Cmd) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	forward := background(t, "port-forward", kubectl("port-forward", pod.Name, ":"+port, "--address", "127.0.0.1"))
	address := forward.Await(t, "Forwarding from ", " ")
	text := strings.Repeat("there and back\n", 1<<16)
	for range 3 {
		answer, err := http.Post("http://"+address, "text/plain", strings.NewReader(text))
		if err != nil {
			t.Fatalf("through port-forward: %v\n%s", err, forward.Log())
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if string(body) != text || err != nil {
			t.Errorf("through port-forward: %d bytes, want %d; %v", len(body), len(text), err)
		}
	}
}

// One handshake serves many kubectl runs, and so does its one signature.
func TestProxySignatures(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice)
	kubeconfig := r.kubeconfig(t, profile.ModeProxy)
	before := r.signatures()
	for range 10 {
		var running []*exec.Cmd
		for range 10 {
			cmd := r.kubectl(kubeconfig, "get", "--raw", "/api/v1/namespaces/default")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			running = append(running, cmd)
		}
		for _, cmd := range running {
			if err := cmd.Wait(); err != nil {
				t.Errorf("kubectl: %v", err)
			}
		}
	}
	if got := r.signatures() - before; got != 1 {
		t.Errorf("100 kubectl runs cost %d signatures of the device, want 1", got)
	}
}

// With no-pool every request has a handshake, hence a signature, of its own.
func TestProxyNoPool(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice, func(r *rig, _ *daemon.BrokerOptions) { r.profile.Proxy.NoPool = true })
	kubeconfig := r.kubeconfig(t, profile.ModeProxy)
	before := r.signatures()
	for range 3 {
		must(t, r.kubectl(kubeconfig, "get", "--raw", "/api/v1/namespaces/default"))
	}
	if got := r.signatures() - before; got != 3 {
		t.Errorf("3 kubectl runs without a pool cost %d signatures, want 3", got)
	}
}
