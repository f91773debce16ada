// Command bench measures what stock kubectl pays for a key that it does not have:
// the figures of make bench that need a real control plane. It prints them as the
// command in holdfast/test/bench does, and takes the same arguments.
package main

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/google/go-tpm/tpm2"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"holdfast/client"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/test/bench/measure"
	"holdfast/test/daemon"
	"holdfast/test/kube"
	"holdfast/test/swtpm"
)

func main() {
	figures := []measure.Figure{{Name: "kubectl", Measure: kubectl}}
	status := measure.Main(figures, os.Args[1:], os.Stdout, os.Stderr, os.Getenv("BENCH_OUT"))
	daemon.Remove()
	os.Exit(status)
}

// user is who runs kubectl.
func user() kube.User { return kube.User{Name: "bench"} }

// kubectl compares one kubectl run after another through the broker with the same
// runs on a certificate whose key is in the kubeconfig, and counts the signatures
// that a hundred of them cost.
func kubectl(b *measure.Bench) {
	plane, err := kube.New(kube.Options{})
	b.Check("control plane", err)
	b.Cleanup(plane.Close)
	b.Check("rights", plane.BindUser(user().Name, "cluster-admin"))
	software, err := plane.Kubeconfig("software", user())
	b.Check("kubeconfig", err)
	tpm := swtpm.NewProxy(b, swtpm.Start(b), swtpm.Options{})
	agent := daemon.Start(b, daemon.Options{Device: tpm.Device()})
	b.Check("enrol", enrol(agent, plane))
	broker := daemon.StartBroker(b, daemon.BrokerOptions{Agent: agent, Profiles: []*profile.Profile{{
		Name: "bench", Key: "bench", Cluster: profile.Cluster{Server: plane.URL, CertificateAuthorityData: string(plane.Authority.PEM)},
	}}})
	hardware, err := hardwareKubeconfig(b, broker)
	b.Check("kubeconfig", err)

	run := func(kubeconfig string) measure.Side {
		return func(int) error {
			cmd := plane.Kubectl(kubeconfig, "get", "namespaces")
			cmd.Env = append(cmd.Env, "HOLDFAST_BROKER_SOCKET="+broker.Socket)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("kubectl: %w: %s", err, out)
			}
			return nil
		}
	}
	b.Timed(1, run(hardware)) // discovery goes into kubectl's cache
	b.Timed(1, run(software))
	before := tpm.Counts()[tpm2.TPMCCSign]
	b.Say("kubectl get namespaces, with the key in the TPM and with a key in the kubeconfig")
	var ratios []float64
	for round := range measure.WarmUps + measure.Rounds {
		var took [2]time.Duration
		for _, i := range measure.Turn(round) {
			took[i] = measure.Median(b.Timed(5, run([...]string{hardware, software}[i])))
		}
		if round >= measure.WarmUps {
			ratios = append(ratios, float64(took[0])/float64(took[1]))
		}
	}
	b.AtMost("kubectl_vs_software_cert", measure.Median(ratios), "ratio", 1.10)
	// The first run's handshake is not among them: it was before the count.
	b.AtMost("signatures_for_100_kubectl_runs", float64(tpm.Counts()[tpm2.TPMCCSign]-before+1), "signatures", 1)
}

// enrol makes the key and gives it a certificate of the plane's authority.
func enrol(agent *daemon.Agent, plane *kube.Plane) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, &client.Options{Socket: agent.Socket})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if _, err := c.CreateKey(ctx, agentwire.CreateKeyParameters{Name: "bench", Purpose: "tls-client"}); err != nil {
		return err
	}
	key, err := c.Key(ctx, "bench")
	if err != nil {
		return err
	}
	der, err := key.CertificateRequest(&x509.CertificateRequest{Subject: pkix.Name{CommonName: user().Name}})
	if err != nil {
		return err
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return err
	}
	chain, err := plane.Authority.Client(user(), request.PublicKey, time.Time{})
	if err != nil {
		return err
	}
	leaf, _ := pem.Decode(chain)
	_, err = c.InstallCertificate(ctx, "bench", [][]byte{leaf.Bytes})
	return err
}

// hardwareKubeconfig is what holdfast kubeconfig add writes for mode proxy.
func hardwareKubeconfig(b *measure.Bench, broker *daemon.Broker) (string, error) {
	plugin, err := exec.LookPath(daemon.Program(b, daemon.PluginProgram))
	if err != nil {
		return "", err
	}
	endpoint := broker.GetStatus().Endpoint
	config := clientcmdapi.NewConfig()
	config.Clusters["bench"] = &clientcmdapi.Cluster{
		Server: "https://" + endpoint.Address, TLSServerName: "bench." + profile.Domain, CertificateAuthorityData: []byte(endpoint.Certificate),
	}
	config.AuthInfos["bench"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: plugin, Args: []string{"--profile", "bench"},
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	config.CurrentContext = "bench"
	path := filepath.Join(b.Dir(), "kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}
