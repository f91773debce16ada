package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"holdfast/client/profile"
	"holdfast/test/daemon"
)

// other is an unused uid.
const other = 47123

// request is a request with a ticket of this process.
func (r *rig) request(t testing.TB) request {
	t.Helper()
	endpoint := r.broker.GetStatus().Endpoint
	return request{
		Address: endpoint.Address, ServerName: r.profile.ServerName(), CA: endpoint.Certificate,
		Path: "/apis/authentication.k8s.io", Token: r.credential(t, r.profile.Name, profile.ModeProxy).Token,
	}
}

// A ticket counts on connections of the process that it was given to.
func TestTicket(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice, withOtherProfile)
	q := r.request(t)
	client := q.client()
	defer client.CloseIdleConnections()
	if code, body, err := q.send(client); code != http.StatusOK {
		t.Fatalf("the process that has the ticket: %d %s, %v", code, body, err)
	}
	t.Run("without a ticket, on the same connection", func(t *testing.T) {
		for _, token := range []string{"", "guess", q.Token + "x", q.Token[:len(q.Token)-1]} {
			bad := q
			bad.Token = token
			if code, body, err := bad.send(client); code != http.StatusUnauthorized {
				t.Errorf("token of %d bytes: %d %s, %v", len(token), code, body, err)
			}
		}
		if code, body, err := q.send(client); code != http.StatusOK {
			t.Errorf("with the ticket again: %d %s, %v", code, body, err)
		}
	})
	t.Run("another process of the same uid", func(t *testing.T) {
		refused(t, run(act(t, "requester", q)))
	})
	t.Run("another uid", func(t *testing.T) {
		cmd := act(t, "requester", q)
		cmd.Path = runnable(t, r, cmd.Path)
		refused(t, run(as(other, cmd)))
	})
	t.Run("another profile's name", func(t *testing.T) {
		bad := q
		bad.ServerName = "other." + profile.Domain
		if code, body, err := bad.send(bad.client()); code != http.StatusUnauthorized {
			t.Errorf("on another name: %d %s, %v", code, body, err)
		}
	})
	t.Run("another profile's ticket, on the same connection", func(t *testing.T) {
		bad := q
		bad.Token = r.credential(t, "other", profile.ModeProxy).Token
		if code, body, err := bad.send(client); code != http.StatusUnauthorized || bad.Token == q.Token {
			t.Errorf("two tickets on one connection: %d %s, %v", code, body, err)
		}
		bad.ServerName = "other." + profile.Domain
		if code, body, err := bad.send(bad.client()); code != http.StatusOK {
			t.Errorf("the other ticket on its own name: %d %s, %v", code, body, err)
		}
	})
	t.Run("no such profile", func(t *testing.T) {
		bad := q
		bad.ServerName = "none." + profile.Domain
		if code, body, err := bad.send(bad.client()); code == http.StatusOK {
			t.Errorf("on the name of no profile: %d %s, %v", code, body, err)
		}
	})
	t.Run("after the process has ended", func(t *testing.T) {
		gone := q
		gone.Token = r.ticketOfEnded(t)
		if code, body, err := gone.send(client); code != http.StatusUnauthorized {
			t.Errorf("a dead process's ticket: %d %s, %v", code, body, err)
		}
	})
}

// withOtherProfile gives the rig a second profile, of the same key.
func withOtherProfile(r *rig, o *daemon.BrokerOptions) {
	other := r.newProfile("other")
	other.Key = r.profile.Key
	o.Profiles = append(o.Profiles, other)
}

// refused holds when a requester was answered 401.
func refused(t *testing.T, o outcome) {
	t.Helper()
	if !strings.HasPrefix(o.stdout, "401 ") {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
}

// ticketOfEnded returns the ticket of a shell that has run the plugin and ended.
func (r *rig) ticketOfEnded(t testing.TB) string {
	t.Helper()
	plugin := r.plugin(t, r.profile.Name, profile.ModeProxy, nil)
	shell := exec.Command("sh", append([]string{"-c", `"$@"; true`, "sh"}, plugin.Args...)...)
	shell.Env = plugin.Env
	return parse(t, must(t, shell)).Token
}

// runnable copies a program to where other uids can run it.
func runnable(t testing.TB, r *rig, program string) string {
	t.Helper()
	from, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	path := filepath.Join(r.dir, "run-"+filepath.Base(program))
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// The same kubeconfig in the hands of another uid: first the broker's socket is
// shut to it, then, wide open, the broker itself.
func TestOtherUID(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice)
	kubeconfig := r.kubeconfig(t, profile.ModeProxy)
	kubectl := func() *exec.Cmd {
		cmd := r.kubectl(kubeconfig, "auth", "whoami")
		cmd.Path = filepath.Join(r.dir, "run-kubectl")
		return as(other, cmd)
	}
	runnable(t, r, r.plane.Program("kubectl"))
	o := run(kubectl())
	if o.code == 0 || o.stdout != "" || !strings.Contains(o.stderr, "executable holdfast-exec-plugin failed with exit code 3") {
		t.Errorf("another uid, socket shut: %+v", o)
	}
	r.broker.Open()
	before := r.signatures()
	o = run(kubectl())
	if o.code == 0 || o.stdout != "" || !strings.Contains(o.stderr, "executable holdfast-exec-plugin failed with exit code 4") {
		t.Errorf("another uid, socket open: %+v", o)
	}
	if got := r.signatures() - before; got != 0 {
		t.Errorf("another uid cost %d signatures", got)
	}
}

// An attacker listens where the proxy should be: kubectl does not send the attacker the
// ticket, because their certificate is not the pinned one.
func TestSquattedPort(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice)
	var requests atomic.Int32
	squatter := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	squatter.EnableHTTP2 = true
	squatter.StartTLS()
	defer squatter.Close()
	config := r.config(t, profile.ModeProxy)
	config.Clusters["test"].Server = "https://" + squatter.Listener.Addr().String()
	o := run(r.kubectl(r.write(t, config), "auth", "whoami"))
	if o.code == 0 || !strings.Contains(o.stderr, "x509: certificate signed by unknown authority") && !strings.Contains(o.stderr, "x509: certificate is valid for") {
		t.Errorf("kubectl against a squatter: %+v", o)
	}
	if requests.Load() != 0 {
		t.Error("the squatter was sent a request")
	}
}
