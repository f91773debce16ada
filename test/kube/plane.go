package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ports are where a plane listens.
type ports struct{ etcd, etcdPeer, apiServer int }

// freePorts finds ports on which no process listens at the moment.
func freePorts() (ports, error) {
	var found [3]int
	for i := range found {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return ports{}, err
		}
		defer func() { _ = l.Close() }() // at the end, so that the three differ
		found[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports{found[0], found[1], found[2]}, nil
}

// pki is the path of a file among the plane's keys.
func (p *Plane) pki(name string) string { return filepath.Join(p.Dir, "pki", name) }

// writeKeys makes the keys and certificates of the plane's own processes.
func (p *Plane) writeKeys() error {
	if _, _, err := p.Authority.Server("apiserver", "127.0.0.1", "::1", "10.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"); err != nil {
		return err
	}
	certificate, key, err := p.Authority.SoftwareUser(User{Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}})
	if err != nil {
		return err
	}
	serviceAccounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := keyPEM(serviceAccounts)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(serviceAccounts.Public())
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"kubelet-client.crt": certificate, "kubelet-client.key": key, "sa.key": private,
		"sa.pub": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
	} {
		if err := os.WriteFile(p.pki(name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plane) startEtcd() error {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", p.ports.etcd), fmt.Sprintf("http://127.0.0.1:%d", p.ports.etcdPeer)
	cmd := exec.Command("etcd", "--name", "test", "--data-dir", p.data, "--logger", "zap", "--log-level", "warn",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "test="+peer)
	var err error
	if p.etcd, err = Run("etcd", filepath.Join(p.Dir, "etcd.log"), cmd); err != nil {
		return err
	}
	return wait(p.etcd, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, client+"/health", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("etcd answers %s", answer.Status)
		}
		return nil
	})
}

// StartAPIServer starts kube-apiserver and returns when it is ready.
func (p *Plane) StartAPIServer() error {
	args := []string{
		"--etcd-servers", fmt.Sprintf("http://127.0.0.1:%d", p.ports.etcd),
		"--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", fmt.Sprint(p.ports.apiServer),
		"--endpoint-reconciler-type", "none",
		"--tls-cert-file", p.pki("apiserver.crt"), "--tls-private-key-file", p.pki("apiserver.key"),
		"--client-ca-file", p.Authority.CertFile,
		"--kubelet-client-certificate", p.pki("kubelet-client.crt"), "--kubelet-client-key", p.pki("kubelet-client.key"),
		"--kubelet-certificate-authority", p.Authority.CertFile, "--kubelet-preferred-address-types", "InternalIP",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", p.pki("sa.pub"), "--service-account-signing-key-file", p.pki("sa.key"),
		"--service-cluster-ip-range", "10.0.0.0/24",
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction", "--enable-bootstrap-token-auth",
		"--shutdown-delay-duration", "0s",
	}
	cmd := exec.Command(filepath.Join(p.options.Programs, "kube-apiserver"), append(args, p.options.APIServer...)...)
	var err error
	if p.apiServer, err = Run("kube-apiserver", filepath.Join(p.Dir, "apiserver.log"), cmd); err != nil {
		return err
	}
	return wait(p.apiServer, func(ctx context.Context) error {
		return p.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// StopAPIServer ends kube-apiserver, at once. etcd keeps what it has stored.
func (p *Plane) StopAPIServer() { p.apiServer.Kill() }

// APIServer returns the process of kube-apiserver.
func (p *Plane) APIServer() *Process { return p.apiServer }

// controllers are those that something here waits for.
const controllers = "certificatesigningrequest-signing-controller,certificatesigningrequest-approving-controller," +
	"clusterrole-aggregation-controller,serviceaccount-controller,root-ca-certificate-publisher-controller,namespace-controller,bootstrap-signer-controller"

func (p *Plane) startManager() error {
	kubeconfig, err := p.Kubeconfig("manager", User{Name: "system:kube-controller-manager"})
	if err != nil {
		return err
	}
	args := append(p.ManagerArgs(kubeconfig), "--leader-elect=false", "--use-service-account-credentials=true", "--controllers="+controllers)
	cmd := exec.Command(filepath.Join(p.options.Programs, "kube-controller-manager"), append(args, p.options.Manager...)...)
	if p.manager, err = Run("kube-controller-manager", filepath.Join(p.Dir, "manager.log"), cmd); err != nil {
		return err
	}
	// Pods cannot be made before their namespace has its service account.
	return wait(p.manager, func(ctx context.Context) error {
		_, err := p.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// ManagerArgs are the arguments by which a kube-controller-manager works for
// this plane with a kubeconfig.
func (p *Plane) ManagerArgs(kubeconfig string) []string {
	return []string{
		"--kubeconfig", kubeconfig, "--authentication-kubeconfig", "", "--secure-port", "0",
		"--root-ca-file", p.Authority.CertFile, "--service-account-private-key-file", p.pki("sa.key"),
		"--cluster-signing-cert-file", p.Authority.CertFile, "--cluster-signing-key-file", p.Authority.KeyFile,
	}
}

// Program returns the path of a Kubernetes program.
func (p *Plane) Program(name string) string { return filepath.Join(p.options.Programs, name) }

// Kubeconfig writes a kubeconfig for a user whose key is in the file, and
// returns its path: NAME.kubeconfig in the plane's directory.
func (p *Plane) Kubeconfig(name string, u User) (string, error) {
	certificate, key, err := p.Authority.SoftwareUser(u)
	if err != nil {
		return "", err
	}
	return p.WriteKubeconfig(name, &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key})
}

// WriteKubeconfig writes a kubeconfig with one cluster, this plane, and one user,
// and returns its path.
func (p *Plane) WriteKubeconfig(name string, user *clientcmdapi.AuthInfo) (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: p.URL, CertificateAuthorityData: slices.Clone(p.Authority.PEM)}
	config.AuthInfos[name] = user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: "test", AuthInfo: name}
	config.CurrentContext = name
	path := filepath.Join(p.Dir, name+".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}
