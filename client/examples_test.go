package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"holdfast/client"
	"holdfast/client/clienttest"
	"holdfast/internal/keys"
	"holdfast/test/daemon"
)

// examples runs the tests with what the examples find in their environment: an
// agent with a certified client key alice and server key www, the CA's
// certificate, and a server that greets its clients.
type examples struct{ m *testing.M }

func (e examples) Run() int {
	defer daemon.Remove()
	tb := &mainTB{}
	defer tb.cleanUp()
	agent, ca := clienttest.Start(tb), clienttest.NewCA(tb)
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	agent.AddKey("www", keys.TLSServer, keys.ES256)
	certifyExamples(agent.Socket, ca)

	file := tb.file(ca.PEM)
	server := greeter(ca)
	defer server.Close()
	os.Setenv("HOLDFAST_SOCKET", agent.Socket)
	os.Setenv("EXAMPLE_CA", file)
	os.Setenv("EXAMPLE_SERVER", server.URL)
	return e.m.Run()
}

func certifyExamples(socket string, ca *clienttest.CA) {
	ctx := context.Background()
	c, err := client.Dial(ctx, &client.Options{Socket: socket})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, name := range []string{"alice", "www"} {
		k, err := c.Key(ctx, name)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := c.InstallCertificate(ctx, name, [][]byte{ca.IssueFor(name, k.Public())}); err != nil {
			log.Fatal(err)
		}
	}
}

func greeter(ca *clienttest.CA) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello "+r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{ca.Server()},
		ClientCAs:    ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	}
	server.StartTLS()
	return server
}

func exampleRoots() *x509.CertPool {
	pem, err := os.ReadFile(os.Getenv("EXAMPLE_CA"))
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return pool
}

// mainTB is as much of a testing.TB as TestMain needs.
type mainTB struct {
	testing.TB
	cleanups []func()
}

func (*mainTB) Helper()             {}
func (*mainTB) Fatal(args ...any)   { log.Fatal(args...) }
func (tb *mainTB) Cleanup(f func()) { tb.cleanups = append(tb.cleanups, f) }

func (tb *mainTB) cleanUp() {
	for _, f := range tb.cleanups {
		f()
	}
}

func (tb *mainTB) file(data []byte) string {
	f, err := os.CreateTemp("", "holdfast")
	if err == nil {
		_, err = f.Write(data)
	}
	if err != nil {
		log.Fatal(fmt.Errorf("examples: %w", err))
	}
	defer f.Close()
	tb.Cleanup(func() { os.Remove(f.Name()) })
	return f.Name()
}
