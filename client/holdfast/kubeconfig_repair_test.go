package main

import (
	"encoding/base64"
	"os"
	"strings"
	"testing"

	"holdfast/client/clienttest"
	"holdfast/internal/brokerwire"
)

// A context from before the profiles had addresses of their own works, and is moved.
func TestKubeconfigCheckFix(t *testing.T) {
	h := setUp(t)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 0)
	before := h.text(t)
	h.broker.own = &brokerwire.Endpoint{Address: "127.70.1.2:16500", Certificate: string(clienttest.NewCA(t).PEM)}
	h.run("kubeconfig", "check").want(t, 0, "kubectl's caches", "holdfast kubeconfig check --fix")
	if h.text(t) != before {
		t.Error("check without --fix has changed the file")
	}
	h.run("kubeconfig", "check", "--fix").want(t, 0, "profile kind-dev, mode proxy")
	data := func(pem string) string { return base64.StdEncoding.EncodeToString([]byte(pem)) }
	want := strings.NewReplacer("https://127.0.0.1:16500", "https://127.70.1.2:16500", data(h.broker.Endpoint.Certificate), data(h.broker.own.Certificate)).Replace(before)
	if got := h.text(t); strings.ReplaceAll(got, `"`, "") != strings.ReplaceAll(want, `"`, "") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	after := h.text(t)
	h.run("kubeconfig", "check", "--fix").want(t, 0, "profile kind-dev, mode proxy")
	if h.text(t) != after {
		t.Error("the second --fix has changed the file")
	}
	h.run("kubeconfig", "remove", "kind-dev").want(t, 0)
	if h.text(t) != h.original {
		t.Errorf("removed, the file is\n%s", h.text(t))
	}
}

// One that does not work, because the broker's port or key is another one now, is
// repaired too.
func TestKubeconfigCheckFixesAnotherPort(t *testing.T) {
	h := setUp(t)
	h.broker.own = &brokerwire.Endpoint{Address: "127.70.1.2:16500", Certificate: string(clienttest.NewCA(t).PEM)}
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 0)
	if c := h.kubectlView(t).cluster("kind-dev-holdfast"); c["server"] != "https://127.70.1.2:16500" || c["tls-server-name"] != nil {
		t.Errorf("got %v, want the profile's own address", c)
	}
	h.broker.own = &brokerwire.Endpoint{Address: "127.70.1.2:16600", Certificate: string(clienttest.NewCA(t).PEM)}
	if got := h.run("kubeconfig", "check"); got.code != 1 || !strings.Contains(got.stdout, "has to be https://127.70.1.2:16600") {
		t.Errorf("got %+v", got)
	}
	h.run("kubeconfig", "check", "--fix").want(t, 0, "profile kind-dev, mode proxy")
}

// An entry that names its CA in a file is not edited.
func TestKubeconfigCheckFixNeedsTheUsualLayout(t *testing.T) {
	h := setUp(t)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 0)
	h.broker.own = &brokerwire.Endpoint{Address: "127.70.1.2:16500", Certificate: string(clienttest.NewCA(t).PEM)}
	before := h.text(t)
	check(t, os.WriteFile(h.config, []byte(strings.Replace(before, "certificate-authority-data:", "certificate-authority: /x\n    #", 1)), 0o600))
	h.run("kubeconfig", "check", "--fix").want(t, 1, "kubectl config view --raw --flatten")
}

// While the proxy does not listen, the broker may not know the profile's own address: the
// shared one needs a server name, which the repair does not write.
func TestKubeconfigCheckFixLeavesAGoodAddress(t *testing.T) {
	h := setUp(t)
	h.broker.own = &brokerwire.Endpoint{Address: "127.70.1.2:16500", Certificate: string(clienttest.NewCA(t).PEM)}
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 0)
	before := h.text(t)
	h.broker.own = nil
	if h.run("kubeconfig", "check", "--fix"); h.text(t) != before {
		t.Errorf("the file is now\n%s", h.text(t))
	}
}

// A context that has holdfast's user at a cluster's own entry, on loopback as kind's is:
// others use that entry too.
func TestKubeconfigCheckFixLeavesOtherClusters(t *testing.T) {
	h := setUp(t)
	like := strings.NewReplacer("https://10.0.0.1:6443", "https://127.0.0.1:6443", "certificate-authority: ca.pem",
		"certificate-authority-data: "+base64.StdEncoding.EncodeToString([]byte(clienttest.NewCA(t).PEM)), "    tls-server-name: kubernetes\n", "")
	check(t, os.WriteFile(h.config, []byte(like.Replace(h.text(t))), 0o600))
	h.broker.own = &brokerwire.Endpoint{Address: "127.70.1.2:16500", Certificate: string(clienttest.NewCA(t).PEM)}
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 0)
	changed := strings.Replace(h.text(t), "cluster: kind-dev-holdfast", "cluster: kind-dev", 1)
	if changed == h.text(t) {
		t.Fatalf("the context is not as expected:\n%s", h.text(t))
	}
	check(t, os.WriteFile(h.config, []byte(changed), 0o600))
	got := h.run("kubeconfig", "check", "--fix")
	if h.text(t) != changed || strings.Contains(got.stdout+got.stderr, "set-cluster kind-dev ") {
		t.Errorf("got %+v, and the file\n%s", got, h.text(t))
	}
}
