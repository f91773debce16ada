package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Node stands in for a kubelet: the API server brings it what kubectl asks of
// running pods (logs, exec, attach, port-forward), and it serves that with
// Kubernetes' own streaming code. A container is a directory and processes of
// this machine.
type Node struct {
	Name string

	plane  *Plane
	server *http.Server

	mu   sync.Mutex
	pods map[types.NamespacedName]*Pod
}

// StartNode starts a node and registers it. It ends with the test; a plane that
// several tests share keeps the object, so that names have to differ.
func (p *Plane) StartNode(tb TB, name string) *Node {
	tb.Helper()
	n, err := p.NewNode(name)
	if err != nil {
		tb.Fatalf("node %s: %v", name, err)
	}
	tb.Cleanup(n.Close)
	return n
}

// NewNode is StartNode without a test. Close it.
func (p *Plane) NewNode(name string) (*Node, error) {
	certFile, keyFile, err := p.Authority.Server(name, "127.0.0.1", name)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &Node{Name: name, plane: p, pods: make(map[types.NamespacedName]*Pod)}
	n.server = &http.Server{
		Handler: n.handler(), ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		ErrorLog:  log.New(os.Stderr, "node "+name+": ", 0),
	}
	go func() { _ = n.server.ServeTLS(listener, certFile, keyFile) }() // until Close
	if err := n.register(listener.Addr().(*net.TCPAddr).Port); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Close stops serving.
func (n *Node) Close() { _ = n.server.Close() }

// register makes the Node object and says where the node is.
func (n *Node) register(port int) error {
	ctx, cancel := context.WithTimeout(context.Background(), ReadyTimeout)
	defer cancel()
	nodes := n.plane.client.CoreV1().Nodes()
	node, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "StandIn", LastHeartbeatTime: metav1.Now()}}
	_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// A Pod has one container, main.
type Pod struct {
	Name string
	Dir  string // where its commands run

	log *podLog
}

// Log adds a line to the container's log.
func (p *Pod) Log(line string) { p.log.add(line + "\n") }

// StartPod makes a pod in the namespace default that runs on the node. It is
// deleted with the test.
func (n *Node) StartPod(tb TB, name string) *Pod {
	tb.Helper()
	pod, err := n.NewPod(name)
	if err != nil {
		tb.Fatalf("pod %s: %v", name, err)
	}
	tb.Cleanup(func() {
		now := int64(0)
		_ = n.plane.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		pod.log.end()
	})
	return pod
}

// NewPod is StartPod without a test.
func (n *Node) NewPod(name string) (*Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), ReadyTimeout)
	defer cancel()
	pod := &Pod{Name: name, Dir: filepath.Join(n.plane.Dir, "pod-"+name), log: newPodLog()}
	if err := os.Mkdir(pod.Dir, 0o700); err != nil {
		return nil, err
	}
	no := false
	made, err := n.plane.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName: n.Name, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/main", Stdin: true}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.pods[types.NamespacedName{Namespace: made.Namespace, Name: name}] = pod
	n.mu.Unlock()
	return pod, n.run(ctx, made)
}

// run says what a kubelet would say of a pod whose container runs.
func (n *Node) run(ctx context.Context, pod *corev1.Pod) error {
	now, yes := metav1.Now(), true
	pod.Status.Phase = corev1.PodRunning
	pod.Status.StartTime = &now
	pod.Status.HostIP, pod.Status.PodIP = "127.0.0.1", "127.0.0.1"
	pod.Status.PodIPs = []corev1.PodIP{{IP: "127.0.0.1"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", Image: "registry.invalid/main", ImageID: "sha256:0", ContainerID: "standin://" + pod.Name, Ready: true, Started: &yes,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}}
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	_, err := n.plane.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// pod finds the pod that a request names.
func (n *Node) pod(r *http.Request) (*Pod, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
	if pod, ok := n.pods[name]; ok {
		return pod, nil
	}
	return nil, fmt.Errorf("pod %s is not on this node", name)
}
