package e2e

import (
	"os/exec"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"holdfast/client/profile"
	"holdfast/test/kube"
)

// checkManager holds when kube-controller-manager, with a key in the TPM, takes
// its leader lease, its controllers work, and all its clients together cost one
// signature.
func checkManager(t *testing.T, r *rig, kubeconfig string, more ...string) {
	plane, name := r.plane, "managed-"+r.profile.Name
	args := append(plane.ManagerArgs(kubeconfig), "--leader-elect=true", "--leader-elect-resource-name="+name, "--controllers=deployment-controller,replicaset-controller")
	args = append(args, more...)
	cmd := exec.Command(plane.Program("kube-controller-manager"), args...)
	cmd.Env = r.environ
	before := r.signatures()
	manager := background(t, "manager", cmd)
	ctx := t.Context()
	eventually(t, "the leader lease", func() string {
		lease, err := plane.Client().CoordinationV1().Leases("kube-system").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error() + "\n" + manager.Tail(5)
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return "nobody holds it"
		}
		return ""
	})
	labels := map[string]string{"app": name}
	_, err := plane.Client().AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/main"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a pod of the deployment", func() string {
		pods, err := plane.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil || len(pods.Items) == 0 {
			return "there is none\n" + manager.Tail(5)
		}
		return ""
	})
	if got := r.signatures() - before; got != 1 {
		t.Errorf("kube-controller-manager cost %d signatures, want 1", got)
	}
}

// In mode proxy all controllers have to use the one identity: the broker carries
// nobody's tokens but its own.
func TestControllerManager(t *testing.T) {
	plane := sharedPlane(t)
	user := kube.User{Name: "system:kube-controller-manager"}
	for _, role := range []string{"deployment-controller", "replicaset-controller"} {
		if err := plane.BindUser(user.Name, "system:controller:"+role); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, plane, user)
	checkManager(t, r, r.kubeconfig(t, profile.ModeProxy), "--use-service-account-credentials=false")
}
