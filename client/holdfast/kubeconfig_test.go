package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"holdfast/client/clienttest"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/keys"
	"holdfast/internal/varlink"
	"holdfast/test/kubectl"
)

// standIn is a broker that only knows its status: the one that it is given, with
// the profiles that are in the directory.
type standIn struct {
	brokerwire.GetStatusReply
	fault error
	own   *brokerwire.Endpoint // of every profile; nil where there is only the shared one
}

func startBroker(t *testing.T) *standIn {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf-") // socket paths have at most 107 bytes
	check(t, err)
	b := &standIn{GetStatusReply: brokerwire.GetStatusReply{
		Version: "test", Mode: "user", Notices: []brokerwire.Notice{},
		Endpoint: brokerwire.Endpoint{Address: "127.0.0.1:16500", Certificate: string(clienttest.NewCA(t).PEM)},
	}}
	status := func(_ context.Context, call *varlink.Call) error {
		if b.fault != nil {
			return b.fault
		}
		return call.Reply(b.answer())
	}
	service := &varlink.Service{
		OnError: func(err error) (string, any) { name, p := brokerwire.Errors().FromError(err); return name, p },
		Interfaces: []varlink.Interface{{
			Name: brokerwire.Interface, Description: brokerwire.Description(), Methods: map[string]varlink.Method{"GetStatus": status},
		}},
	}
	path := filepath.Join(dir, "broker.sock")
	listener, err := net.Listen("unix", path)
	check(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { service.ServeConn(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		stop()
		serving.Wait()
		os.RemoveAll(dir)
	})
	t.Setenv("HOLDFAST_BROKER_SOCKET", path)
	return b
}

func (b *standIn) answer() brokerwire.GetStatusReply {
	reply := b.GetStatusReply
	reply.Profiles = []brokerwire.Profile{}
	profiles, _, _ := profile.Load(profile.Directory(false))
	for name, p := range profiles {
		known := brokerwire.Profile{Name: name, Key: p.Key, Modes: p.Modes}
		if b.own != nil {
			known.Address, known.Certificate = b.own.Address, b.own.Certificate
		}
		reply.Profiles = append(reply.Profiles, known)
	}
	return reply
}

// here is where a test of the kubeconfig commands takes place.
type here struct {
	command
	agent    *clienttest.Agent
	broker   *standIn
	config   string
	original string
	profiles string
	ca       []byte // the cluster's
}

// kubeText is a user's kubeconfig, with a context for each thing that can be
// wrong with one.
func kubeText() string {
	return `# mine
apiVersion: v1
kind: Config
current-context: kind-dev
clusters:
- cluster:
    certificate-authority: ca.pem  # beside this file
    server: https://10.0.0.1:6443
    proxy-url: socks5://127.0.0.1:1080
    tls-server-name: kubernetes
    disable-compression: true
  name: kind-dev
- {name: insecure, cluster: {server: "https://10.0.0.2", insecure-skip-tls-verify: true}}
- {name: bare, cluster: {server: "https://10.0.0.3"}}
- {name: plain, cluster: {server: "http://10.0.0.3", certificate-authority: ca.pem}}
contexts:
- context: {cluster: kind-dev, user: 'admin', namespace: tools}
  name: kind-dev
- {name: insecure, context: {cluster: insecure, user: admin}}
- {name: bare, context: {cluster: bare, user: admin}}
- {name: plain, context: {cluster: plain, user: admin}}
- {name: lost, context: {cluster: gone, user: admin}}
- {name: "ü", context: {cluster: kind-dev, user: admin}}
users:
- name: admin
  user: {token: hunter2, as: boss}
`
}

func setUp(t *testing.T) *here {
	t.Helper()
	agent, alice := withAlice(t)
	agent.AddKey("web", keys.TLSServer, keys.ES256)
	agent.AddKey("team.2", keys.TLSClient, keys.ES256)
	dir := t.TempDir()
	h := &here{command: alice, agent: agent, broker: startBroker(t), config: filepath.Join(dir, "config"), original: kubeText(), ca: clienttest.NewCA(t).PEM}
	check(t, os.WriteFile(h.config, []byte(h.original), 0o640))
	check(t, os.WriteFile(filepath.Join(dir, "ca.pem"), h.ca, 0o644))
	bin := filepath.Join(dir, "bin")
	check(t, os.Mkdir(bin, 0o755))
	check(t, os.WriteFile(filepath.Join(bin, execPlugin), []byte("#!/bin/sh\nexit 1\n"), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "xdg"))
	t.Setenv("KUBECONFIG", h.config)
	h.profiles = filepath.Join(dir, "xdg", "holdfast", "profiles")
	return h
}

func (h *here) text(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(h.config)
	check(t, err)
	return string(text)
}

// unchanged fails the test unless nothing was written at all.
func (h *here) unchanged(t *testing.T) {
	t.Helper()
	if h.text(t) != h.original {
		t.Errorf("the kubeconfig was changed:\n%s", h.text(t))
	}
	if entries, err := os.ReadDir(h.profiles); err == nil && len(entries) > 0 {
		t.Errorf("profiles were left: %v", entries)
	}
}

// view is a kubeconfig as kubectl understands it.
type view struct {
	Current  string `json:"current-context"`
	Clusters []struct {
		Name    string
		Cluster map[string]any
	}
	Users []struct {
		Name string
		User map[string]any
	}
	Contexts []struct {
		Name    string
		Context map[string]any
	}
}

// kubectlView asks a stock kubectl what the kubeconfig says.
func (h *here) kubectlView(t *testing.T) (v view) {
	t.Helper()
	cmd := exec.Command(kubectl.Path(t), "--kubeconfig", h.config, "config", "view", "--raw", "-o", "json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl: %v\n%s\n%s", err, stderr.String(), h.text(t))
	}
	check(t, json.Unmarshal(out, &v))
	return v
}

func (v view) cluster(name string) map[string]any {
	for _, c := range v.Clusters {
		if c.Name == name {
			return c.Cluster
		}
	}
	return nil
}

func (v view) user(name string) map[string]any {
	for _, u := range v.Users {
		if u.Name == name {
			return u.User
		}
	}
	return nil
}

func (v view) context(name string) map[string]any {
	for _, c := range v.Contexts {
		if c.Name == name {
			return c.Context
		}
	}
	return nil
}
