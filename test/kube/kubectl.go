package kube

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Kubectl prepares kubectl of the plane's version with a kubeconfig. Its cache
// and its home are private.
func (p *Plane) Kubectl(kubeconfig string, args ...string) *exec.Cmd {
	return p.KubectlOf(filepath.Join(p.options.Programs, "kubectl"), kubeconfig, args...)
}

// KubectlOf is Kubectl with another kubectl.
func (p *Plane) KubectlOf(program, kubeconfig string, args ...string) *exec.Cmd {
	home := filepath.Join(p.Dir, "home")
	cmd := exec.Command(program, args...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "KUBECACHEDIR=" + filepath.Join(home, "cache"), "KUBERC=off",
		"KUBECONFIG=" + kubeconfig,
	}
	return cmd
}

// Administer runs kubectl as the administrator and returns what it printed.
func (p *Plane) Administer(args ...string) (string, error) {
	cmd := p.Kubectl(p.Admin, args...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}

// programs finds the Kubernetes programs, and builds those that are missing.
var programs = sync.OnceValues(func() (string, error) {
	source, err := directory()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(source, "build"))
	cmd.Stderr = os.Stderr // it takes minutes, and says so
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build the Kubernetes programs: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// Programs returns the directory of kubectl, kube-apiserver,
// kube-controller-manager and kubelet, which it builds when they are missing.
func Programs() (string, error) { return programs() }

// directory is where this module's source is, whatever the build left out of
// the paths that it recorded.
func directory() (string, error) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "holdfast/test/kube")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
