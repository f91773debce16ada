// Package kube gives tests a Kubernetes control plane: etcd, kube-apiserver and
// kube-controller-manager of the version that go.mod names, on loopback, with a
// public key infrastructure of their own; stock kubectl to talk to it; and a
// node, either a stand-in that answers what kubectl asks of a kubelet, or a real
// kubelet.
//
// Start at [Start] in a test, or at [New] where several tests share a plane.
// Nothing here is a fake but the node's containers: [Node] runs the commands of
// its pods as processes of this machine.
//
// The programs are built by the script build, once, into the user's cache
// directory. A plane is ready in 2 to 4 seconds. Each process is ended by its id,
// and by the kernel when the test process dies. A plane protects nothing: the
// keys of its authorities lie in files beside it, and etcd listens on loopback
// without asking who connects.
package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ReadyTimeout bounds every wait for a process. They take seconds on an idle
// machine; the rest is for a loaded one.
const ReadyTimeout = 60 * time.Second

// Options says what a plane is made of.
type Options struct {
	Controllers bool     // kube-controller-manager too: it signs certificates and makes service accounts
	APIServer   []string // further arguments of kube-apiserver
	Manager     []string // further arguments of kube-controller-manager
	Programs    string   // the directory of the Kubernetes programs; when empty they are found, or built
}

// A TB is what the package wants of a test. Every [testing.TB] is one.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
}

// A Plane is a control plane.
type Plane struct {
	URL       string // https://127.0.0.1:PORT
	Dir       string // everything it wrote
	Authority *Authority
	Admin     string // the path of the administrator's kubeconfig (group system:masters)

	options   Options
	data      string // etcd's, in memory where the machine has a place for it
	ports     ports
	etcd      *Process
	apiServer *Process
	manager   *Process
	config    *rest.Config
	client    *kubernetes.Clientset
}

// Start starts a plane that is stopped when the test ends; when the test has
// failed, the ends of its logs are shown.
func Start(tb TB, o Options) *Plane {
	tb.Helper()
	p, err := New(o)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("%s", p.Logs())
		}
		p.Close()
	})
	return p
}

// New starts a plane and returns when its API server is ready. Close it.
func New(o Options) (*Plane, error) {
	if o.Programs == "" {
		var err error
		if o.Programs, err = Programs(); err != nil {
			return nil, err
		}
	}
	p := &Plane{options: o}
	if err := p.prepare(); err != nil {
		p.Close()
		return nil, err
	}
	if err := p.start(); err != nil {
		err = fmt.Errorf("%w\n%s", err, p.Logs())
		p.Close()
		return nil, err
	}
	return p, nil
}

// prepare makes what the processes read.
func (p *Plane) prepare() (err error) {
	if p.Dir, err = os.MkdirTemp("", "hf-kube-"); err != nil {
		return err
	}
	if err = os.Chmod(p.Dir, 0o711); err != nil { // other uids read what they are given
		return err
	}
	// etcd waits for the disk after each write; a plane of a test has nothing to lose.
	if p.data, err = os.MkdirTemp("/dev/shm", "hf-etcd-"); err != nil {
		p.data = filepath.Join(p.Dir, "etcd")
	}
	if p.Authority, err = newAuthority(filepath.Join(p.Dir, "pki"), "holdfast test cluster"); err != nil {
		return err
	}
	return p.writeKeys()
}

// start starts the processes. Another program may take a port between the
// moment it was found free and the moment it is listened on; hence the tries.
func (p *Plane) start() (err error) {
	for try := range 3 {
		if p.ports, err = freePorts(); err != nil {
			return err
		}
		p.URL = fmt.Sprintf("https://127.0.0.1:%d", p.ports.apiServer)
		if err = p.connect(); err != nil {
			return err
		}
		if err = p.startEtcd(); err == nil {
			err = p.StartAPIServer()
		}
		if err == nil || try == 2 || !strings.Contains(p.Logs(), "address already in use") {
			break
		}
		p.stopAll()
	}
	if err == nil && p.options.Controllers {
		err = p.startManager()
	}
	return err
}

// connect makes the administrator's kubeconfig and client.
func (p *Plane) connect() (err error) {
	if p.Admin, err = p.Kubeconfig("admin", User{Name: "admin", Groups: []string{"system:masters"}}); err != nil {
		return err
	}
	if p.config, err = clientcmd.BuildConfigFromFlags("", p.Admin); err != nil {
		return err
	}
	p.config.QPS, p.config.Burst = -1, -1
	p.client, err = kubernetes.NewForConfig(p.config)
	return err
}

// Config returns what a client needs to be the administrator.
func (p *Plane) Config() *rest.Config { return rest.CopyConfig(p.config) }

// Client returns the administrator's client.
func (p *Plane) Client() *kubernetes.Clientset { return p.client }

// Close stops the processes and removes what they wrote.
func (p *Plane) Close() {
	p.stopAll()
	for _, dir := range []string{p.Dir, p.data} {
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
}

func (p *Plane) stopAll() {
	for _, process := range []*Process{p.manager, p.apiServer, p.etcd} {
		if process != nil {
			process.Kill()
		}
	}
}

// Logs returns the ends of the logs of all processes.
func (p *Plane) Logs() string {
	var all []string
	for _, process := range []*Process{p.etcd, p.apiServer, p.manager} {
		if process != nil {
			all = append(all, process.Tail(40))
		}
	}
	return strings.Join(all, "\n")
}

// wait calls ready until it returns nil, the process ends or the timeout passes.
func wait(process *Process, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), ReadyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("%s ended: %s", process.name, process.State())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", process.name, err)
		case <-tick.C:
		}
	}
}
