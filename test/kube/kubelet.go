package kube

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/cri-client/pkg/fake"
)

// kubeletConfig is a kubelet's configuration that asks nothing of the machine:
// no cgroups, no firewall, no disk.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: %q
imageServiceEndpoint: %q
rotateCertificates: false
failCgroupV1: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
address: 127.0.0.1
port: %d
healthzPort: 0
authentication:
  x509:
    clientCAFile: %q
  webhook:
    enabled: true
  anonymous:
    enabled: false
authorization:
  mode: Webhook
nodeStatusUpdateFrequency: 1s
`

// unprivileged is what a kubelet's own mount namespace hides from it: where it
// and its plug-ins keep files, and the kernel settings that it would change for
// the whole machine.
const unprivileged = `set -eu
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /var/log
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	[ -e /proc/sys/$setting ] || continue
	copy=$1/$(echo $setting | tr / -)
	cat /proc/sys/$setting >"$copy"
	mount --bind "$copy" /proc/sys/$setting
done
shift
exec "$@"
`

// A Kubelet is a real one, whose container runtime is a stand-in that runs
// nothing.
type Kubelet struct {
	*Process
	runtime *fake.RemoteRuntime
}

// StartKubelet starts a kubelet that signs in with a kubeconfig. It wants root,
// for a mount namespace of its own. env is added to its environment. It ends with
// the test.
func (p *Plane) StartKubelet(tb TB, name, kubeconfig string, env ...string) *Kubelet {
	tb.Helper()
	k, err := p.newKubelet(name, kubeconfig, env)
	if err != nil {
		tb.Fatalf("kubelet %s: %v", name, err)
	}
	tb.Cleanup(k.close)
	return k
}

func (p *Plane) newKubelet(name, kubeconfig string, env []string) (*Kubelet, error) {
	dir := filepath.Join(p.Dir, "kubelet-"+name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	found, err := freePorts()
	if err != nil {
		return nil, err
	}
	k := &Kubelet{runtime: fake.NewFakeRemoteRuntime()}
	k.runtime.ImageService.SetFakeImageSize(1)
	endpoint := "unix://" + filepath.Join(dir, "cri.sock")
	if err := k.runtime.Start(endpoint); err != nil {
		return nil, fmt.Errorf("container runtime: %w", err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, kubeletConfig, endpoint, endpoint, found.apiServer, p.Authority.CertFile), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("unshare", "-m", "sh", "-c", unprivileged, "sh", dir, p.Program("kubelet"),
		"--config", config, "--kubeconfig", kubeconfig, "--hostname-override", name, "--node-ip", "127.0.0.1",
		"--root-dir", filepath.Join(dir, "root"), "--cert-dir", filepath.Join(dir, "pki"))
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, env...)
	if k.Process, err = Run("kubelet", filepath.Join(dir, "log"), cmd); err != nil {
		k.runtime.Stop()
		return nil, err
	}
	return k, nil
}

func (k *Kubelet) close() {
	k.Kill()
	k.runtime.Stop()
}
