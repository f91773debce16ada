package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"holdfast/client/profile"
	"holdfast/test/daemon"
	"holdfast/test/pace"
)

// A controller with a leader lease and five informers, as controller-runtime's manager
// makes them of client-go, over restarts of the broker, by TERM and KILL in turn: no
// request fails, the lease is never lost, and each informer sees a change that is made
// during the restart within a second.
func TestControllerOverBrokerRestarts(t *testing.T) {
	plane := sharedPlane(t)
	manager := daemon.NewManager(t)
	var options daemon.BrokerOptions
	r := newRig(t, plane, alice, func(_ *rig, o *daemon.BrokerOptions) {
		*o = manager.Passing(*o)
		options = *o
	})
	c := r.controller(t)
	var slowest time.Duration
	for i := range pace.Share(4, 20) {
		signal := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[i%2]
		// client-go waits after a watch that was short and brought nothing.
		c.change(t, fmt.Sprint("before-", i))
		c.seen(t, fmt.Sprint("before-", i))
		began := time.Now()
		r.broker.Signal(signal)
		r.broker.Exit()
		c.change(t, fmt.Sprint("restart-", i)) // which no broker is there to forward
		options.Dir, options.Profiles = r.broker.Dir, nil
		r.broker = daemon.StartBroker(t, manager.Passing(options))
		c.seen(t, fmt.Sprint("restart-", i))
		gap := time.Since(began)
		if slowest = max(slowest, gap); pace.Over(t, gap, time.Second) {
			t.Errorf("%v: the change was seen after %v", signal, gap)
		}
	}
	c.check(t)
	t.Logf("the longest gap: %v", slowest)
}

// controller is a leader election and informers in this process.
type controller struct {
	direct    kubernetes.Interface // past the broker
	informers []cache.SharedIndexInformer
	lost      atomic.Bool // the lease

	mu     sync.Mutex
	faults []string // failed requests
}

// controller starts a controller that signs in through the broker, and waits until it
// leads.
func (r *rig) controller(t *testing.T) *controller {
	t.Helper()
	c := &controller{direct: r.plane.Client()}
	config, err := clientcmd.NewDefaultClientConfig(*r.inProcess(t, r.config(t, profile.ModeProxy)), nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &observed{next, c} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for range 5 {
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("default"))
		informer := factory.Core().V1().ConfigMaps().Informer()
		c.informers = append(c.informers, informer)
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	leads := make(chan struct{})
	running.Go(func() { c.lead(ctx, client, leads) })
	<-leads
	eventually(t, "the informers", func() string {
		for _, i := range c.informers {
			if !i.HasSynced() {
				return "one has no list"
			}
		}
		return ""
	})
	return c
}

// lead takes the lease, with the periods of controller-runtime.
func (c *controller) lead(ctx context.Context, client kubernetes.Interface, leads chan<- struct{}) {
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Name: "restarted-controller", Namespace: "default"}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "test"},
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leads) },
			OnStoppedLeading: func() { c.lost.Store(ctx.Err() == nil) },
		},
	})
}

// observed notes requests that fail.
type observed struct {
	next http.RoundTripper
	to   *controller
}

func (o *observed) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := o.next.RoundTrip(r)
	if r.Context().Err() != nil {
		return answer, err
	}
	fault := ""
	switch {
	case err != nil:
		fault = err.Error()
	case answer.StatusCode == http.StatusNotFound && strings.Contains(r.URL.Path, "/leases/"): // before the first
	case answer.StatusCode >= 400 && answer.Header.Get("Retry-After") == "": // client-go sends those again itself
		fault = answer.Status
	}
	if fault != "" {
		o.to.mu.Lock()
		defer o.to.mu.Unlock()
		o.to.faults = append(o.to.faults, r.Method+" "+r.URL.String()+": "+fault)
	}
	return answer, err
}

// change makes a ConfigMap, past the broker.
func (c *controller) change(t *testing.T, name string) {
	t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.direct.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.direct.CoreV1().ConfigMaps("default").Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

// seen returns when every informer has seen it.
func (c *controller) seen(t *testing.T, name string) {
	t.Helper()
	eventually(t, name, func() string {
		for i, informer := range c.informers {
			if _, found, _ := informer.GetStore().GetByKey("default/" + name); !found {
				return fmt.Sprintf("informer %d has not seen it", i)
			}
		}
		return ""
	})
}

// check reports what failed.
func (c *controller) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fault := range c.faults {
		t.Errorf("failed: %s", fault)
	}
	if c.lost.Load() {
		t.Error("the lease was lost")
	}
}
