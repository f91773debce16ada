package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/client/profile"
	"holdfast/test/daemon"
)

// sharedProfiles has the broker read the profiles that the rig's tool writes.
func sharedProfiles(r *rig, o *daemon.BrokerOptions) {
	o.Args = append(o.Args, "--profiles", filepath.Join(r.dir, "config", "holdfast", "profiles"))
}

// added returns a kubeconfig with a context that `kubeconfig add` has written, with
// the given options.
func (r *rig) added(t testing.TB, options ...string) string {
	t.Helper()
	config := r.config(t, profile.ModeToken)
	config.AuthInfos["test"].Exec = nil
	path := r.write(t, config)
	must(t, r.tool(t, append([]string{"kubeconfig", "add", "test", "--key", "prod", "--use", "--kubeconfig", path}, options...)...))
	return path
}

// nodeModules returns the installed npm packages of ../clients.
func nodeModules(t testing.TB) string {
	t.Helper()
	cmd := exec.Command("../clients/install")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("@kubernetes/client-node cannot be installed: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "node_modules")
}

// script copies a program of testdata beside the npm packages that it imports.
func script(t testing.TB, name, modules string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	path := filepath.Join(t.TempDir(), name)
	if err := errors.Join(err, os.WriteFile(path, text, 0o600), os.Symlink(modules, filepath.Join(filepath.Dir(path), "node_modules"))); err != nil {
		t.Fatal(err)
	}
	return path
}

// Client libraries of other languages sign in with the entries that `kubeconfig add`
// writes for them. Some set no KUBERNETES_EXEC_INFO, and some send no server name.
func TestOtherLanguages(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice, sharedProfiles)
	programs := map[string][]string{
		"node":   {"node", script(t, "whoami.mjs", nodeModules(t))},
		"python": {"/usr/bin/python3", script(t, "whoami.py", nodeModules(t))},
	}
	direct := r.kubeconfig(t, profile.ModeProxy)
	for i, options := range [][]string{
		{"--preset", "other-languages"},
		{"--dedicated-port", "--api-version", "v1beta1"},
		{"--dedicated-port"},
	} {
		kubeconfig := r.added(t, options...)
		for language, program := range programs {
			t.Run(fmt.Sprint(language, options), func(t *testing.T) {
				name := fmt.Sprintf("%s-%d", language, i)
				cmd := exec.Command(program[0], append(program[1:], name)...)
				cmd.Env = append([]string{"KUBECONFIG=" + kubeconfig}, r.environ...)
				b := background(t, language, cmd)
				b.Await(t, alice.Name, "\n")
				must(t, r.kubectl(direct, "create", "configmap", name))
				b.Await(t, "ADDED", "\n")
			})
		}
	}
}
