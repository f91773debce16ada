package broker_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/client"
	"holdfast/client/clienttest"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/brokerwire"
	"holdfast/internal/dial"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/varlink"
	"holdfast/test/daemon"
	"holdfast/test/swtpm"
)

// pluginVariable makes the test program the plugin: it asks the broker at this
// socket, and its parent, the test, is who gets the ticket.
const pluginVariable = "HOLDFAST_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if path := os.Getenv(pluginVariable); path != "" {
		os.Exit(plugin(path, os.Args[1]))
	}
	code := m.Run()
	daemon.Remove()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// plugin makes one call with the parameters text and prints what came of it.
func plugin(path, text string) int {
	var p brokerwire.GetCredentialParameters
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	credential, err := ask(path, p)
	answer := pluginAnswer{Credential: credential}
	if e, ok := fault.AsError(err); ok {
		answer.Kind, answer.Message, answer.Hint = e.Kind, e.Message, e.Advice()
	} else if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return map[bool]int{true: 0, false: 1}[json.NewEncoder(os.Stdout).Encode(answer) == nil]
}

type pluginAnswer struct {
	Credential    *brokerwire.Credential
	Kind          fault.Kind
	Message, Hint string
}

// ask calls GetCredential from this very process.
func ask(path string, p brokerwire.GetCredentialParameters) (*brokerwire.Credential, error) {
	var reply brokerwire.GetCredentialReply
	err := call(path, brokerwire.GetCredential, p, &reply)
	return reply.Credential, err
}

// call makes one call. An error of the broker is a fault.Error.
func call(path, method string, in, out any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := dial.Broker().Connect(ctx, path)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = conn.Call(ctx, method, in, out)
	var answered *varlink.Error
	if errors.As(err, &answered) {
		var p fault.Parameters
		json.Unmarshal(answered.Parameters, &p)
		if e, ok := brokerwire.Errors().ToError(answered.Name, p); ok {
			return e
		}
	}
	return err
}

// rig is an agent with a TPM and a key, a server that knows the key's owner, and a
// broker between them.
type rig struct {
	t       *testing.T
	tpm     *swtpm.TPM
	agent   *daemon.Agent
	client  *client.Client
	ca      *clienttest.CA
	server  *httptest.Server
	broker  *daemon.Broker
	options daemon.BrokerOptions
}

// newRig starts everything, with the profile prod, after change has looked at it.
func newRig(t *testing.T, change ...func(*rig)) *rig {
	t.Helper()
	r := &rig{t: t, ca: clienttest.NewCA(t), tpm: swtpm.Start(t)}
	r.agent = daemon.Start(t, daemon.Options{Device: r.tpm.Device()})
	r.client = client.New(&client.Options{Socket: r.agent.Socket})
	t.Cleanup(func() { r.client.Close() })
	r.key(agentwire.CreateKeyParameters{Name: "alice"})
	r.certify("alice")
	r.serve()
	r.options = daemon.BrokerOptions{Agent: r.agent, Profiles: []*profile.Profile{r.profile("prod")}, Args: []string{"--log-level", "debug"}}
	for _, c := range change {
		c(r)
	}
	r.broker = daemon.StartBroker(t, r.options)
	return r
}

func (r *rig) profile(name string) *profile.Profile {
	return &profile.Profile{
		Name: name, Key: "alice", Modes: []string{profile.ModeProxy},
		Cluster: profile.Cluster{Server: "https://" + r.server.Listener.Addr().String(), CertificateAuthorityData: string(r.ca.PEM)},
	}
}

func (r *rig) key(p agentwire.CreateKeyParameters) {
	r.t.Helper()
	p.Purpose, p.Algorithm = string(keys.TLSClient), string(keys.ES256)
	if _, err := r.client.CreateKey(context.Background(), p); err != nil {
		r.t.Fatal(err)
	}
}

// certify gives a key a new certificate.
func (r *rig) certify(name string) {
	r.t.Helper()
	k, err := r.client.Key(context.Background(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	request, err := k.CertificateRequest(&x509.CertificateRequest{Subject: pkix.Name{CommonName: name}})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.client.InstallCertificate(context.Background(), name, [][]byte{r.ca.Issue(request)}); err != nil {
		r.t.Fatal(err)
	}
}

// serve starts a server that says who signed in, and with which certificate, at
// /whoami, and at /watch goes on until it is asked no more.
func (r *rig) serve() {
	who := func(w http.ResponseWriter, q *http.Request) {
		leaf := q.TLS.PeerCertificates[0]
		fmt.Fprintf(w, "%s %s %q\n", leaf.Subject.CommonName, leaf.SerialNumber, q.Header.Get("Authorization"))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/whoami", who)
	mux.HandleFunc("/watch", func(w http.ResponseWriter, q *http.Request) {
		who(w, q)
		w.(http.Flusher).Flush()
		<-q.Context().Done()
	})
	r.server = httptest.NewUnstartedServer(mux)
	r.server.EnableHTTP2 = true
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.server.TLS = &tls.Config{Certificates: []tls.Certificate{r.ca.Server()}, ClientCAs: r.ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}
	r.server.StartTLS()
	r.t.Cleanup(r.server.Close)
}

// plugin runs a plugin whose parent is the test.
func (r *rig) plugin(p brokerwire.GetCredentialParameters) (*brokerwire.Credential, error) {
	r.t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], string(text))
	cmd.Env = append(os.Environ(), pluginVariable+"="+r.broker.Socket)
	out, err := cmd.Output()
	if err != nil {
		var failed *exec.ExitError
		errors.As(err, &failed)
		r.t.Fatalf("plugin: %v %s\n%s", err, failed.Stderr, r.broker.Log())
	}
	var answer pluginAnswer
	if err := json.Unmarshal(out, &answer); err != nil {
		r.t.Fatal(err)
	}
	if answer.Kind != "" {
		return nil, &fault.Error{Kind: answer.Kind, Message: answer.Message, Hint: answer.Hint}
	}
	return answer.Credential, nil
}

// ticket returns a ticket for this process.
func (r *rig) ticket(name string) string {
	r.t.Helper()
	c, err := r.plugin(brokerwire.GetCredentialParameters{Profile: name, Mode: brokerwire.ModeProxy})
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.broker.Log())
	}
	return c.Token
}

// get makes a request through the proxy, on a connection of its own, and returns
// the first line of the answer. The body stays open.
func (r *rig) get(name, ticket, path string) (string, *http.Response) {
	r.t.Helper()
	s := r.broker.GetStatus()
	return r.getAt(s.Endpoint.Address, s.Endpoint.Certificate, name+"."+profile.Domain, ticket, path)
}

func (r *rig) getAt(address, certificate, serverName, ticket, path string) (string, *http.Response) {
	r.t.Helper()
	pinned := x509.NewCertPool()
	pinned.AppendCertsFromPEM([]byte(certificate))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pinned, ServerName: serverName}, ForceAttemptHTTP2: true}
	r.t.Cleanup(transport.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	r.t.Cleanup(cancel)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+ticket)
	answer, err := transport.RoundTrip(q)
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.broker.Log())
	}
	r.t.Cleanup(func() { answer.Body.Close() })
	line, _ := bufio.NewReader(answer.Body).ReadString('\n')
	return strings.TrimSpace(line), answer
}

// cut reports whether an open answer ends within the test's timeout.
func cut(answer *http.Response) bool {
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, answer.Body)
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-time.After(30 * time.Second):
		answer.Body.Close()
		<-ended
		return false
	}
}

// within waits until ok, for a while.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// taken listens on a free port of the loopback interface.
func taken(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
