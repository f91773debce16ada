package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"holdfast/client/profile"
	"holdfast/test/daemon"
)

// tool prepares the command holdfast as the rig's user, who has the broker's
// profiles.
func (r *rig) tool(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	config := filepath.Join(r.dir, "config")
	profiles := filepath.Join(config, "holdfast", "profiles")
	if err := os.MkdirAll(profiles, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := profile.Write(profiles, r.profile); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(daemon.Program(t, daemon.Tool), args...)
	cmd.Env = append([]string{"XDG_CONFIG_HOME=" + config}, r.environ...)
	return cmd
}

// Renewals cut nothing: a watch and a port-forward go on across three of them,
// the last with a new key, while new requests use the new certificate.
func TestRenewal(t *testing.T) {
	plane := sharedPlane(t)
	user := worker("renewing")
	if err := plane.BindUser(user.Name, "cluster-admin"); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, plane, user)
	kubeconfig := r.kubeconfig(t, profile.ModeProxy)
	pod := plane.StartNode(t, "renewals").StartPod(t, "renewals")
	watch := background(t, "watch", r.kubectl(kubeconfig, "get", "configmaps", "--watch", "-o", "name"))
	watch.Await(t, "kube-root-ca.crt", "\n")
	ask := forwarded(t, r, kubeconfig, pod.Name)
	connection := ask()

	identity := func() string {
		return must(t, r.kubectl(kubeconfig, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.extra}"))
	}
	seen := map[string]bool{identity(): true}
	for i, arguments := range [][]string{nil, nil, {"--new-key"}} {
		before := r.signatures()
		must(t, r.tool(t, append([]string{"certificate", "renew", "prod"}, arguments...)...))
		renewing := r.signatures() - before
		eventually(t, "the new certificate", func() string {
			if id := identity(); seen[id] {
				return "new requests still use " + id
			} else {
				seen[id] = true
			}
			return ""
		})
		t.Logf("renewal %d cost %d signatures", i+1, renewing)
		name := fmt.Sprintf("renewed-%d", i)
		must(t, r.kubectl(kubeconfig, "create", "configmap", name))
		watch.Await(t, name, "\n")
		must(t, r.kubectl(kubeconfig, "delete", "configmap", name))
		if now := ask(); now != connection {
			t.Errorf("after renewal %d the forwarded connection is another", i+1)
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d certificates were used, want 4", len(seen))
	}
}

// forwarded starts a port-forward to a server of this process. The function
// returned asks that server, over one connection, and returns which one the
// server has seen.
func forwarded(t *testing.T, r *rig, kubeconfig, pod string) func() string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { _, _ = io.WriteString(w, q.RemoteAddr) }))
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	forward := background(t, "port-forward", r.kubectl(kubeconfig, "port-forward", pod, ":"+port, "--address", "127.0.0.1"))
	address := forward.Await(t, "Forwarding from ", " ")
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	t.Cleanup(client.CloseIdleConnections)
	return func() string {
		t.Helper()
		answer, err := client.Get("http://" + address)
		if err != nil {
			t.Fatalf("through port-forward: %v\n%s", err, forward.Log())
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}
