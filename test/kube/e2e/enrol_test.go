package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A key gets its first certificate with what a newcomer has: a bootstrap token,
// in a file or in a context, or a context that runs another exec plugin.
func TestEnrol(t *testing.T) {
	plane := sharedPlane(t)
	r := newRig(t, plane, alice)
	token, err := plane.BootstrapToken()
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(token, ".")
	decide(t, plane, "system:bootstrap:"+id, certificatesv1.CertificateApproved)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	login := filepath.Join(t.TempDir(), "login")
	answer := fmt.Sprintf(`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":%q}}`, token)
	if err := os.WriteFile(login, []byte("#!/bin/sh\necho '"+answer+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	context := func(name string, user *clientcmdapi.AuthInfo) string {
		path, err := plane.WriteKubeconfig("newcomer-"+name, user)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, source := range map[string][]string{
		"file":    {"--token-file", file, "--server", plane.URL, "--ca", plane.Authority.CertFile},
		"context": {"--kubeconfig", context("token", &clientcmdapi.AuthInfo{Token: token})},
		"plugin": {"--kubeconfig", context("plugin", &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: login, InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
		}})},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"enroll", "kubernetes", "from-" + name, "--key", "from-" + name, "--create", "--subject", "CN=carol,O=dev"}, source...)
			if out := must(t, r.tool(t, args...)); !strings.Contains(out, "carol (groups dev)") {
				t.Errorf("enroll: %s", out)
			}
		})
	}
	if out := must(t, r.tool(t, "renew", "--due")); strings.Contains(out, "renewed") {
		t.Errorf("a fresh certificate was due: %s", out)
	}
}
