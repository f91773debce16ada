package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	"holdfast/client"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/brokerwire"
	"holdfast/test/daemon"
	"holdfast/test/swtpm"
)

// profileName is the profile that the brokers of this program know.
const profileName = "bench"

// An authority is a certification authority for the length of a figure.
type authority struct {
	b    *bench
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(b *bench) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	b.Check("CA key", err)
	ca := &authority{b: b, key: key}
	ca.cert = ca.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "bench CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, key.Public())
	return ca
}

func (ca *authority) issue(template *x509.Certificate, public crypto.PublicKey) *x509.Certificate {
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	parent := ca.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, ca.key)
	ca.b.Check("certificate", err)
	cert, err := x509.ParseCertificate(der)
	ca.b.Check("certificate", err)
	return cert
}

// user is the certificate of a user who signs in with public.
func (ca *authority) user(public crypto.PublicKey) *x509.Certificate {
	return ca.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "bench"}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, public)
}

// pair makes a software key and its certificate.
func (ca *authority) pair(certify func(crypto.PublicKey) *x509.Certificate) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ca.b.Check("key", err)
	return tls.Certificate{Certificate: [][]byte{certify(key.Public()).Raw}, PrivateKey: key}
}

func (ca *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// A cluster is what a broker needs around it: an API server's stand-in, in this
// process, which wants client certificates; an agent on a software TPM whose key
// has one; and the broker.
type cluster struct {
	b      *bench
	ca     *authority
	server string // https://127.0.0.1:PORT
	agent  *client.Client
	broker *daemon.Broker
	plugin string        // the program
	delay  time.Duration // how long the API server takes for a token
}

func newCluster(b *bench, delay time.Duration, change func(*profile.Profile)) *cluster {
	c := &cluster{b: b, delay: delay, ca: newAuthority(b), plugin: daemon.Program(b, daemon.PluginProgram)}
	c.serve()
	a := daemon.Start(b, daemon.Options{Device: swtpm.Start(b).Device()})
	var err error
	c.agent, err = client.Dial(context.Background(), &client.Options{Socket: a.Socket})
	b.Check("agent", err)
	b.Cleanup(func() { c.agent.Close() })
	ctx := context.Background()
	_, err = c.agent.CreateKey(ctx, agentwire.CreateKeyParameters{Name: keyName, Purpose: "tls-client"})
	b.Check("create key", err)
	key, err := c.agent.Key(ctx, keyName)
	b.Check("key", err)
	_, err = c.agent.InstallCertificate(ctx, keyName, [][]byte{c.ca.user(key.Public()).Raw})
	b.Check("install certificate", err)
	p := &profile.Profile{Name: profileName, Key: keyName, Modes: []string{profile.ModeProxy, profile.ModeToken}}
	p.Cluster = profile.Cluster{Server: c.server, CertificateAuthorityData: string(c.caPEM())}
	p.Token = profile.Token{Namespace: "default", ServiceAccount: "bench"}
	if change != nil {
		change(p)
	}
	c.broker = daemon.StartBroker(b, daemon.BrokerOptions{Agent: a, Profiles: []*profile.Profile{p}})
	return c
}

func (c *cluster) caPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.ca.cert.Raw})
}

// serve starts the API server's stand-in.
func (c *cluster) serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	c.b.Check("listen", err)
	c.server = "https://" + listener.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"major":"1"}`) })
	mux.HandleFunc("GET /big", stream)
	mux.HandleFunc("POST /big", func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	mux.HandleFunc("GET /watch", watch)
	mux.HandleFunc("POST /api/v1/namespaces/default/serviceaccounts/bench/token", c.token)
	server := &http.Server{Handler: mux, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{c.ca.pair(func(public crypto.PublicKey) *x509.Certificate {
			return c.ca.issue(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, public)
		})},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: c.ca.pool(), MinVersion: tls.VersionTLS13,
	}}
	go server.ServeTLS(listener, "", "")
	c.b.Cleanup(func() { server.Close() })
}

// stream sends as many bytes as it is asked for.
func stream(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
	io.Copy(w, io.LimitReader(zeros{}, n))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// watch says that it has begun, and nothing more until the client goes.
func watch(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "{}\n")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func (c *cluster) token(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(c.delay)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","status":{"token":"a.b.c","expirationTimestamp":%q}}`,
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

// run runs the plugin in a mode, as kubectl does, and returns what it printed.
func (c *cluster) run(mode string) []byte {
	out, err := c.command(c.plugin, "--profile", profileName, "--mode", mode).Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		c.b.Fatalf("plugin: %w: %s", err, exit.Stderr)
	}
	c.b.Check("plugin", err)
	return out
}

// command is a program as kubectl runs plugins.
func (c *cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	info := map[string]any{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "spec": map[string]any{
		"interactive": false, "cluster": map[string]any{"server": c.server, "certificate-authority-data": c.caPEM()},
	}}
	text, err := json.Marshal(info)
	c.b.Check("KUBERNETES_EXEC_INFO", err)
	cmd.Env = append(os.Environ(), "HOLDFAST_BROKER_SOCKET="+c.broker.Socket, "KUBERNETES_EXEC_INFO="+string(text))
	return cmd // Output keeps what it says on stderr, for an error
}

// ticket is a ticket for this process.
func (c *cluster) ticket() string {
	var got struct{ Status struct{ Token string } }
	c.b.Check("ticket", json.Unmarshal(c.run(brokerwire.ModeProxy), &got))
	return got.Status.Token
}

// direct signs in at the server with a software key, ours through the proxy.
func (c *cluster) direct() *http.Client {
	return &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		RootCAs: c.ca.pool(), Certificates: []tls.Certificate{c.ca.pair(c.ca.user)},
	}}}
}

func (c *cluster) ours() (*http.Client, string) {
	status := c.broker.GetStatus()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(status.Endpoint.Certificate)) {
		c.b.Fatalf("the proxy has no certificate")
	}
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: profileName + "." + profile.Domain}}
	return &http.Client{Transport: bearer{transport, c.ticket()}}, "https://" + status.Endpoint.Address
}

// bearer adds the ticket, as client-go does.
type bearer struct {
	next   http.RoundTripper
	ticket string
}

// RoundTrip implements http.RoundTripper.
func (t bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.ticket)
	return t.next.RoundTrip(r)
}
