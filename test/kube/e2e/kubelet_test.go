package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"holdfast/client/profile"
	"holdfast/test/kube"
)

// A real kubelet signs in with an exec kubeconfig in each mode that is for nodes:
// its node gets ready, and its lease is renewed.
func TestKubelet(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	for _, mode := range []string{profile.ModeCertificate, profile.ModeProxy} {
		t.Run(mode, func(t *testing.T) {
			name := "kubelet-" + mode
			r := newRig(t, plane, kube.User{Name: "system:node:" + name, Groups: []string{"system:nodes"}})
			before := r.signatures()
			kubelet := plane.StartKubelet(t, name, r.kubeconfig(t, mode), r.environ...)
			ready(t, plane, name, kubelet)
			if got := r.signatures() - before; got != 1 {
				t.Errorf("kubelet cost %d signatures, want 1", got)
			}
		})
	}
}

// ready waits until a node is ready and its lease has been renewed.
func ready(t *testing.T, plane *kube.Plane, name string, kubelet *kube.Kubelet) {
	t.Helper()
	ctx := context.Background()
	eventually(t, "node "+name, func() string {
		select {
		case <-kubelet.Done():
			t.Fatalf("kubelet ended: %s\n%s", kubelet.State(), kubelet.Tail(20))
		default:
		}
		node, err := plane.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error() + "\n" + kubelet.Tail(10)
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return ""
			}
		}
		return "is not ready\n" + kubelet.Tail(10)
	})
	eventually(t, "the lease of "+name, func() string {
		if _, err := plane.Client().CoordinationV1().Leases("kube-node-lease").Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// The judge itself: with a key in a file, the same kubelet gets ready.
func TestKubeletWithFile(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	const name = "kubelet-file"
	kubeconfig, err := plane.Kubeconfig(name, kube.User{Name: "system:node:" + name, Groups: []string{"system:nodes"}})
	if err != nil {
		t.Fatal(err)
	}
	ready(t, plane, name, plane.StartKubelet(t, name, kubeconfig))
}
