package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/daemon"
	"holdfast/test/swtpm"
)

// realRig is a real agent on a real software TPM.
type realRig struct {
	client *client.Client
	ca     *clienttest.CA
	caFile string
}

func newRealRig(t *testing.T) *realRig {
	t.Helper()
	agent := daemon.Start(t, daemon.Options{Device: swtpm.Start(t).Device()})
	ca := clienttest.NewCA(t)
	return &realRig{dial(t, agent.Socket), ca, writeFile(t, ca.PEM)}
}

// key makes a key that may sign TLS 1.2 too, with a certificate from the rig's
// CA that it has requested itself.
func (r *realRig) key(t *testing.T, name string, purpose keys.Purpose, algorithm keys.Algorithm) *client.Key {
	t.Helper()
	ctx := context.Background()
	_, err := r.client.CreateKey(ctx, agentwire.CreateKeyParameters{Name: name, Purpose: string(purpose), Algorithm: string(algorithm), TLS12: true})
	check(t, err)
	request, err := fetch(t, r.client, name).CertificateRequest(&x509.CertificateRequest{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
	})
	check(t, err)
	_, err = r.client.InstallCertificate(ctx, name, [][]byte{r.ca.Issue(request)})
	check(t, err)
	return fetch(t, r.client, name)
}

func writeFile(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	check(t, os.WriteFile(path, data, 0o600))
	return path
}

func versions() map[string]uint16 {
	return map[string]uint16{"-tls1_2": tls.VersionTLS12, "-tls1_3": tls.VersionTLS13}
}

// Go against Go, both with keys in the TPM; OpenSSL against each of them.
func TestRealHandshakes(t *testing.T) {
	for _, algorithm := range keys.Algorithms() {
		t.Run(string(algorithm), func(t *testing.T) {
			r := newRealRig(t)
			clientKey := r.key(t, "alice", keys.TLSClient, algorithm)
			serverKey := r.key(t, "www", keys.TLSServer, algorithm)
			clientConfig := &tls.Config{RootCAs: r.ca.Pool(), ServerName: "localhost"}
			check(t, clientKey.ConfigureClient(clientConfig))
			serverConfig := &tls.Config{ClientCAs: r.ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}
			check(t, serverKey.ConfigureServer(serverConfig))
			for flag, version := range versions() {
				clientConfig.MaxVersion, serverConfig.MaxVersion = version, version
				state, clientErr, serverErr := handshake(clientConfig, serverConfig)
				if clientErr != nil || serverErr != nil || state.Version != version {
					t.Errorf("Go %s: %s, client: %v, server: %v", flag, tls.VersionName(state.Version), clientErr, serverErr)
				}
				r.opensslServer(t, flag, clientConfig)
				r.opensslClient(t, flag, algorithm, serverKey)
			}
		})
	}
}

// opensslServer logs in to openssl s_server, which tells whom it has seen.
func (r *realRig) opensslServer(t *testing.T, flag string, cfg *tls.Config) {
	t.Helper()
	cert := r.ca.Server()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	check(t, err)
	keyFile := writeFile(t, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	address := startServer(t, "-cert", writeFile(t, clienttest.PEM(cert.Certificate...)), "-key", keyFile,
		"-CAfile", r.caFile, "-Verify", "1", "-verify_return_error", "-www", flag)
	transport := &http.Transport{TLSClientConfig: cfg}
	defer transport.CloseIdleConnections()
	reply, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Get("https://" + address)
	if err != nil {
		t.Errorf("s_server %s: %v", flag, err)
		return
	}
	defer reply.Body.Close()
	page, err := io.ReadAll(reply.Body)
	if err != nil || !strings.Contains(string(page), "CN = alice") && !strings.Contains(string(page), "CN=alice") {
		t.Errorf("s_server %s saw %q, %v, want alice", flag, page, err)
	}
}

// startServer starts openssl s_server and returns its address.
func startServer(t *testing.T, args ...string) string {
	t.Helper()
	log := &synced{}
	cmd := exec.Command("openssl", append([]string{"s_server", "-accept", "127.0.0.1:0"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	check(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, rest, ok := strings.Cut(log.String(), "ACCEPT 127.0.0.1:"); ok && strings.Contains(rest, "\n") {
			port, _, _ := strings.Cut(rest, "\n")
			return "127.0.0.1:" + strings.TrimSpace(port)
		}
	}
	t.Fatalf("openssl s_server does not start: %s", log.String())
	return ""
}

// opensslClient has openssl s_client judge a server whose key is in the TPM.
func (r *realRig) opensslClient(t *testing.T, flag string, algorithm keys.Algorithm, k *client.Key) {
	t.Helper()
	cfg := &tls.Config{}
	check(t, k.ConfigureServer(cfg))
	listener, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	check(t, err)
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	cmd := exec.Command("openssl", "s_client", "-connect", listener.Addr().String(), "-servername", "localhost",
		"-verify_hostname", "localhost", "-CAfile", r.caFile, "-verify_return_error", flag)
	out, err := cmd.CombinedOutput()
	want := map[keys.Algorithm]string{
		keys.ES256: "Peer signing digest: SHA256\nPeer signature type: ECDSA",
		keys.ES384: "Peer signing digest: SHA384\nPeer signature type: ECDSA",
		keys.RS256: "Peer signing digest: SHA256\nPeer signature type: RSA-PSS",
	}[algorithm]
	if err != nil || !strings.Contains(string(out), "Verify return code: 0 (ok)") || !strings.Contains(string(out), want) {
		t.Errorf("s_client %s: %v, want %q in\n%s", flag, err, want, out)
	}
}

// A request that OpenSSL verifies is what CAs get.
func TestRealCertificateRequest(t *testing.T) {
	r := newRealRig(t)
	for _, algorithm := range keys.Algorithms() {
		name := strings.ToLower(string(algorithm))
		der, err := r.key(t, name, keys.TLSClient, algorithm).CertificateRequest(&x509.CertificateRequest{Subject: pkix.Name{CommonName: name}})
		check(t, err)
		out, err := exec.Command("openssl", "req", "-verify", "-noout", "-inform", "DER", "-in", writeFile(t, der)).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "verify OK") {
			t.Errorf("%s: %v: %s", algorithm, err, out)
		}
	}
}

// A key without tls12 is not asked for TLS 1.2 by us, and refuses when others ask.
func TestRealTLS12Refused(t *testing.T) {
	r := newRealRig(t)
	k := r.key(t, "alice", keys.TLSClient, keys.ES256)
	_, err := r.client.CreateKey(context.Background(), agentwire.CreateKeyParameters{Name: "bob", Purpose: "tls-client"})
	check(t, err)
	chain := [][]byte{r.ca.IssueFor("bob", fetch(t, r.client, "bob").Public())}
	_, err = r.client.InstallCertificate(context.Background(), "bob", chain)
	check(t, err)
	server := &tls.Config{Certificates: []tls.Certificate{r.ca.Server()}, ClientCAs: r.ca.Pool(), ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}
	for _, key := range []*client.Key{k, fetch(t, r.client, "bob")} {
		cert, err := key.TLSCertificate()
		check(t, err)
		_, clientErr, _ := handshake(&tls.Config{RootCAs: r.ca.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{cert}}, server)
		if want := key.Info().TLS12; (clientErr == nil) != want {
			t.Errorf("%s: got %v, want success: %t", key.Info().Name, clientErr, want)
		}
	}
}

// The agent is killed again and again while a client signs. The socket is kept
// by whoever started the agent, as systemd does, and no call fails.
func TestRealAgentKilled(t *testing.T) {
	const kills = 10
	dir := daemon.Dir(t)
	path := filepath.Join(dir, "agent.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	check(t, err)
	defer listener.Close()
	check(t, os.Chmod(path, 0o600))
	device := swtpm.Start(t).Device()
	kill := activate(t, listener, dir, device)
	c := dial(t, path)
	_, err = c.CreateKey(context.Background(), agentwire.CreateKeyParameters{Name: "alice", Purpose: "tls-client"})
	check(t, err)
	k := fetch(t, c, "alice")

	stop, done := make(chan struct{}), make(chan error, 1)
	progress := make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := k.SignMessage(nil, tls13Message(), keys.ECDSAP256SHA256.SignerOpts()); err != nil {
				done <- err
				return
			}
			select {
			case progress <- struct{}{}:
			default:
			}
		}
	}()
	for n := range kills {
		for range 3 { // signatures before the next kill
			select {
			case <-progress:
			case err := <-done:
				t.Fatalf("after %d kills: %v", n, err)
			case <-time.After(20 * time.Second):
				t.Fatalf("after %d kills: no signature in 20 s", n)
			}
		}
		kill()
		kill = activate(t, listener, dir, device)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Errorf("after %d kills: %v", kills, err)
	}
	kill()
}

// activate starts an agent on a socket that it does not own, and returns what
// kills it.
func activate(t *testing.T, listener *net.UnixListener, dir, device string) (kill func()) {
	t.Helper()
	socket, err := listener.File()
	check(t, err)
	defer socket.Close()
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"`, "sh", daemon.Program(t, daemon.AgentProgram),
		"--state", filepath.Join(dir, "state"), "--socket", filepath.Join(dir, "agent.sock"), "--device", device)
	cmd.ExtraFiles = []*os.File{socket}
	log := &synced{}
	cmd.Stderr = log
	check(t, cmd.Start())
	kill = func() { cmd.Process.Kill(); cmd.Wait() }
	t.Cleanup(func() {
		kill()
		if t.Failed() {
			t.Logf("agent: %s", log.String())
		}
	})
	return kill
}

// The agent's rejection is passed on unchanged, also for another key.
func TestRealRefusals(t *testing.T) {
	r := newRealRig(t)
	k := r.key(t, "www", keys.TLSServer, keys.ES256)
	_, err := k.SignMessage(nil, tls13Message(), keys.ECDSAP256SHA256.SignerOpts())
	if fault.KindOf(err) != fault.WrongPurpose {
		t.Errorf("a client's message for a server's key: got %v, want wrong-purpose", err)
	}
	if _, err := r.client.Key(context.Background(), "nobody"); fault.KindOf(err) != fault.Denied {
		t.Errorf("no such key: got %v, want denied", err)
	}
}
