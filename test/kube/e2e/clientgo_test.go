package e2e

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/dial"
	"holdfast/test/daemon"
	"holdfast/test/kube"
)

// inProcess makes a kubeconfig work for client-go in this process, whose
// environment is not the rig's.
func (r *rig) inProcess(t testing.TB, config *clientcmdapi.Config) *clientcmdapi.Config {
	t.Helper()
	e := config.AuthInfos["test"].Exec
	if e.Command == "holdfast-exec-plugin" {
		e.Command = daemon.Program(t, daemon.PluginProgram)
	}
	e.Env = append(e.Env, clientcmdapi.ExecEnvVar{Name: "HOLDFAST_BROKER_SOCKET", Value: r.broker.Socket}, clientcmdapi.ExecEnvVar{Name: "PATH", Value: programPath(t)})
	return config
}

// newClient is a client-go client with a kubeconfig.
func newClient(t testing.TB, config *clientcmdapi.Config) *kubernetes.Clientset {
	t.Helper()
	rc, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	rc.QPS = -1
	c, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// whoami asks the API server who the client is.
func whoami(c kubernetes.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

// client-go takes what the plugin prints, in every mode and every version that
// it speaks.
func TestClientGo(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice, withNode(t))
	want := map[string]string{profile.ModeProxy: alice.Name, profile.ModeCertificate: node.Name, profile.ModeToken: "system:serviceaccount:default:default"}
	for mode, user := range want {
		for _, version := range []string{"v1", "v1beta1"} {
			for _, info := range []bool{true, false} {
				if !info && mode != profile.ModeProxy {
					continue // refused: TestHostileCluster
				}
				t.Run(fmt.Sprintf("%s %s %v", mode, version, info), func(t *testing.T) {
					config := r.inProcess(t, r.config(t, mode))
					config.AuthInfos["test"].Exec.APIVersion = "client.authentication.k8s.io/" + version
					config.AuthInfos["test"].Exec.ProvideClusterInfo = info
					if mode == profile.ModeCertificate {
						config.AuthInfos["test"].Exec.Args[1] = "node"
					}
					if got, err := whoami(newClient(t, config)); got != user || err != nil {
						t.Errorf("whoami: %q, %v; want %s", got, err, user)
					}
				})
			}
		}
	}
}

// forget makes the broker forget what it has given out.
func (r *rig) forget(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	conn, err := dial.Broker().Connect(ctx, r.broker.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.Call(ctx, brokerwire.Forget, brokerwire.ForgetParameters{}, &brokerwire.Empty{}); err != nil {
		t.Fatalf("Forget: %v", err)
	}
}

// A controller's informer sees everything across three rotations.
func TestInformer(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	t.Run("proxy", func(t *testing.T) {
		r := newRig(t, plane, alice)
		checkInformer(t, r, "informer-proxy", r.config(t, profile.ModeProxy), func(*kubernetes.Clientset) {
			r.renew(t, alice)
			r.forget(t)
		})
	})
	t.Run("certificate", func(t *testing.T) {
		user := worker("informing")
		if err := plane.BindUser(user.Name, "cluster-admin"); err != nil {
			t.Fatal(err)
		}
		r := newRig(t, plane, user)
		config := r.config(t, profile.ModeCertificate)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		e := config.AuthInfos["test"].Exec
		e.Command = self
		e.Env = []clientcmdapi.ExecEnvVar{{Name: actAs, Value: "shortener"}}
		checkInformer(t, r, "informer-certificate", config, func(c *kubernetes.Clientset) {
			minted := requests(plane, user)
			r.forget(t)
			eventually(t, "a fresh certificate", func() string {
				_, _ = whoami(c) // client-go asks again when it has something to send
				if requests(plane, user) > minted {
					return ""
				}
				return "none was asked for"
			})
		})
		if got := requests(plane, user); got < 4 {
			t.Errorf("%d certificates were minted, want at least 4", got)
		}
	})
}

// checkInformer runs an informer on a namespace of its own, makes an object before
// and after each of three rotations, and holds when the informer sees each once.
func checkInformer(t *testing.T, r *rig, namespace string, config *clientcmdapi.Config, rotate func(*kubernetes.Clientset)) {
	ctx := context.Background()
	if _, err := r.plane.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := newClient(t, r.inProcess(t, config))
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	var mu sync.Mutex
	seen := map[string]int{}
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		mu.Lock()
		defer mu.Unlock()
		seen[object.(*corev1.ConfigMap).Name]++
	}})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	defer factory.Shutdown()
	defer close(stop)
	create := func(name string) {
		if _, err := r.plane.Client().CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the informer and "+name, func() string {
			// A controller also writes now and then.
			_, _ = client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
			mu.Lock()
			defer mu.Unlock()
			if seen[name] == 1 {
				return ""
			}
			return fmt.Sprintf("seen %d times", seen[name])
		})
	}
	create("before")
	for i := range 3 {
		rotate(client)
		create(fmt.Sprintf("after-rotation-%d", i+1))
	}
}

// A credential that the cluster refuses is replaced: client-go runs the plugin
// again after a 401, and gets another one. A 403 replaces nothing.
func TestUnauthorized(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	robot := func() {
		ctx := context.Background()
		accounts := plane.Client().CoreV1().ServiceAccounts("default")
		_ = accounts.Delete(ctx, "robot", metav1.DeleteOptions{})
		if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	robot()
	r := newRig(t, plane, alice, func(r *rig, _ *daemon.BrokerOptions) { r.profile.Token.ServiceAccount = "robot" })
	client := newClient(t, r.inProcess(t, r.config(t, profile.ModeToken)))
	if got, err := whoami(client); err != nil || got != "system:serviceaccount:default:robot" {
		t.Fatalf("whoami: %q, %v", got, err)
	}
	first := r.credential(t, "prod", profile.ModeToken)
	if _, err := client.CoreV1().Secrets("default").List(context.Background(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("list secrets as a robot: %v", err)
	}
	if again := r.credential(t, "prod", profile.ModeToken); again != first {
		t.Error("a repeat after a 403 got another credential")
	}
	robot() // the same name, another account: the token is void
	eventually(t, "the old token", func() string {
		if _, err := whoami(client); !apierrors.IsUnauthorized(err) {
			return fmt.Sprintf("still taken: %v", err)
		}
		return ""
	})
	eventually(t, "a token of the new account", func() string {
		if got, err := whoami(client); err != nil {
			return fmt.Sprintf("%q, %v", got, err)
		}
		return ""
	})
	if again := r.credential(t, "prod", profile.ModeToken); again.Token == first.Token {
		t.Error("the broker still gives out the old token")
	}
}

// renew gives the rig's key a new certificate, as a renewal does.
func (r *rig) renew(t testing.TB, user kube.User) {
	t.Helper()
	r.install(t, r.profile.Key, user, time.Now().Add(12*time.Hour))
}
