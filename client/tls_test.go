package client_test

import (
	"context"
	"crypto"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// handshake runs both sides over a pipe in memory and returns what each made of
// it.
func handshake(client, server *tls.Config) (state tls.ConnectionState, clientErr, serverErr error) {
	a, b := net.Pipe()
	// One deadline, so that a side that fails silently cannot hold the other up.
	a.SetDeadline(time.Now().Add(10 * time.Second))
	b.SetDeadline(time.Now().Add(10 * time.Second))
	c, s := tls.Client(a, client), tls.Server(b, server)
	done := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("welcome"))
		}
		b.Close()
		done <- err
	}()
	clientErr = c.Handshake()
	if clientErr == nil {
		// With TLS 1.3 the server judges the client after the client is done.
		_, clientErr = io.ReadFull(c, make([]byte, len("welcome")))
	}
	state = c.ConnectionState()
	a.Close()
	return state, clientErr, <-done
}

// withKeys returns client and server configurations whose keys are both behind
// an agent, certified by one CA.
func withKeys(t *testing.T, agent *clienttest.Agent, algorithm keys.Algorithm, tls12 bool) (*tls.Config, *tls.Config) {
	t.Helper()
	ca := clienttest.NewCA(t)
	c := dial(t, agent.Socket)
	clientConfig := &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"}
	serverConfig := &tls.Config{ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}
	for name, use := range map[string]struct {
		purpose   keys.Purpose
		config    *tls.Config
		configure func(*client.Key, *tls.Config) error
	}{
		"alice": {keys.TLSClient, clientConfig, (*client.Key).ConfigureClient},
		"www":   {keys.TLSServer, serverConfig, (*client.Key).ConfigureServer},
	} {
		agent.AddKey(name, use.purpose, algorithm)
		agent.Change(name, func(k *agentwire.Key) { k.TLS12 = tls12 })
		certify(t, c, ca, name)
		if err := use.configure(fetch(t, c, name), use.config); err != nil {
			t.Fatal(err)
		}
	}
	return clientConfig, serverConfig
}

func certify(t *testing.T, c *client.Client, ca *clienttest.CA, name string) {
	t.Helper()
	chain := [][]byte{ca.IssueFor(name, fetch(t, c, name).Public())}
	if _, err := c.InstallCertificate(context.Background(), name, chain); err != nil {
		t.Fatal(err)
	}
}

func TestHandshake(t *testing.T) {
	for _, algorithm := range keys.Algorithms() {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(string(algorithm)+" "+tls.VersionName(version), func(t *testing.T) {
				agent := clienttest.Start(t)
				clientConfig, serverConfig := withKeys(t, agent, algorithm, true)
				serverConfig.MaxVersion = version
				state, clientErr, serverErr := handshake(clientConfig, serverConfig)
				if clientErr != nil || serverErr != nil {
					t.Fatalf("client: %v; server: %v", clientErr, serverErr)
				}
				if state.Version != version {
					t.Errorf("got %s", tls.VersionName(state.Version))
				}
				if c, s := len(agent.Calls(agentwire.SignTLSClient)), len(agent.Calls(agentwire.SignTLSServer)); c != 1 || s != 1 {
					t.Errorf("the client's key signed %d times and the server's %d times, want once each", c, s)
				}
			})
		}
	}
}

// A key that may not sign TLS 1.2 is not offered with it.
func TestNoTLS12(t *testing.T) {
	agent := clienttest.Start(t)
	clientConfig, serverConfig := withKeys(t, agent, keys.ES256, false)
	serverConfig.MinVersion, serverConfig.MaxVersion = 0, tls.VersionTLS12
	_, err, _ := handshake(clientConfig, serverConfig)
	if err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("got %v, want a refusal of the version", err)
	}
	if n := len(agent.Calls(agentwire.SignTLSClient)); n != 0 {
		t.Errorf("the agent was asked %d times", n)
	}
}

// crypto/tls would say only that the handshake failed.
func TestOtherSideLacksScheme(t *testing.T) {
	agent := clienttest.Start(t)
	clientConfig, _ := withKeys(t, agent, keys.ES384, false)
	request := &tls.CertificateRequestInfo{SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}}
	_, err := clientConfig.GetClientCertificate(request)
	if e, ok := fault.AsError(err); !ok || e.Kind != fault.Unsupported || !strings.Contains(e.Message, "ecdsa_secp384r1_sha384") {
		t.Errorf("got %v, want an error that names the scheme", err)
	}
}

// A renewed chain is used without fetching the key again.
func TestRenewedChain(t *testing.T) {
	agent := clienttest.Start(t)
	agent.AddKey("www", keys.TLSServer, keys.ES256)
	c, ca := dial(t, agent.Socket), clienttest.NewCA(t)
	certify(t, c, ca, "www")
	cfg := &tls.Config{}
	if err := fetch(t, c, "www").ConfigureServer(cfg); err != nil {
		t.Fatal(err)
	}
	hello := &tls.ClientHelloInfo{SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}}
	before, err := cfg.GetCertificate(hello)
	if err != nil {
		t.Fatal(err)
	}
	certify(t, c, ca, "www")
	for deadline := time.Now().Add(30 * time.Second); ; {
		now, err := cfg.GetCertificate(hello)
		if err != nil {
			t.Fatal(err)
		}
		if !now.Leaf.Equal(before.Leaf) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the old chain is still used after 5 s")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// An observer gets the error of each signature as the agent gave it, and stays with a
// tls.Config when the chain is fetched again.
func TestWithObserver(t *testing.T) {
	agent := clienttest.Start(t)
	agent.AddKey("www", keys.TLSServer, keys.ES256)
	c, ca := dial(t, agent.Socket), clienttest.NewCA(t)
	certify(t, c, ca, "www")
	var seen []error
	cfg := &tls.Config{}
	observed := fetch(t, c, "www").WithObserver(func(_ time.Duration, err error) { seen = append(seen, err) })
	if err := observed.ConfigureServer(cfg); err != nil {
		t.Fatal(err)
	}
	hello := &tls.ClientHelloInfo{SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}}
	before := len(agent.Calls(agentwire.GetKey))
	for deadline := time.Now().Add(5 * time.Second); len(agent.Calls(agentwire.GetKey)) == before; time.Sleep(20 * time.Millisecond) {
		if _, err := cfg.GetCertificate(hello); err != nil || time.Now().After(deadline) {
			t.Fatalf("the chain was not fetched again: %v", err)
		}
	}
	certificate, err := cfg.GetCertificate(hello)
	if err != nil {
		t.Fatal(err)
	}
	signer := certificate.PrivateKey.(crypto.MessageSigner)
	message := []byte(strings.Repeat(" ", 64) + "TLS 1.3, server CertificateVerify\x00" + strings.Repeat("h", 32))
	if _, err := signer.SignMessage(nil, message, crypto.SHA256); err != nil {
		t.Fatal(err)
	}
	agent.Fail(agentwire.SignTLSServer, &fault.Error{Kind: fault.Denied, Message: "no"})
	_, err = signer.SignMessage(nil, message, crypto.SHA256)
	if len(seen) != 2 || seen[0] != nil || fault.KindOf(seen[1]) != fault.Denied || seen[1] != err {
		t.Errorf("observed %v, want nil and %v", seen, err)
	}
}

// A key of the other role is refused: crypto/tls would send no certificate, and say
// nothing.
func TestConfigureRefusesOtherPurposes(t *testing.T) {
	for _, purpose := range []keys.Purpose{keys.TLSClient, keys.TLSServer, keys.ServiceAccount} {
		_, k := newKey(t, purpose, keys.ES256)
		for name, try := range map[string]struct {
			configure func(*tls.Config) error
			takes     keys.Purpose
		}{"client": {k.ConfigureClient, keys.TLSClient}, "server": {k.ConfigureServer, keys.TLSServer}} {
			cfg := &tls.Config{Certificates: make([]tls.Certificate, 1)}
			err := try.configure(cfg)
			if purpose == try.takes {
				if err != nil {
					t.Errorf("%s key in a %s's configuration: %v", purpose, name, err)
				}
				continue
			}
			if client.KindOf(err) != client.WrongPurpose {
				t.Errorf("%s key in a %s's configuration: got %v, want wrong-purpose", purpose, name, err)
			}
			if cfg.GetClientCertificate != nil || cfg.GetCertificate != nil || len(cfg.Certificates) != 1 {
				t.Errorf("%s key in a %s's configuration: it was changed", purpose, name)
			}
		}
	}
}

func TestTLSCertificateRefusals(t *testing.T) {
	agent, k := newKey(t, keys.TLSClient, keys.ES256)
	if _, err := k.TLSCertificate(); fault.KindOf(err) != fault.NotFound {
		t.Errorf("no chain: got %v, want not-found", err)
	}
	c, ca := dial(t, agent.Socket), clienttest.NewCA(t)
	agent.Change("alice", func(k *agentwire.Key) { k.Chain = [][]byte{ca.Certificate.Raw} })
	if _, err := fetch(t, c, "alice").TLSCertificate(); fault.KindOf(err) != fault.KeyMismatch {
		t.Errorf("chain of another key: got %v, want key-mismatch", err)
	}
	agent.Change("alice", func(k *agentwire.Key) { k.Chain = [][]byte{{1, 2}} })
	if _, err := fetch(t, c, "alice").TLSCertificate(); err == nil {
		t.Error("damaged chain: got no error")
	}
}

// The agent's refusal is what the user of net/http sees.
func TestHTTPDenied(t *testing.T) {
	agent := clienttest.Start(t)
	clientConfig, serverConfig := withKeys(t, agent, keys.ES256, false)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = discard
	server.TLS = serverConfig
	server.StartTLS()
	defer server.Close()
	agent.Fail(agentwire.SignTLSClient, &fault.Error{Kind: fault.Denied, Message: "uid 7 may not"})
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: clientConfig}}
	defer h.CloseIdleConnections()
	_, err := h.Get(server.URL)
	if err == nil || !strings.Contains(err.Error(), "uid 7 may not") {
		t.Errorf("got %v, want the agent's reason", err)
	}
}

var discard = log.New(io.Discard, "", 0)
