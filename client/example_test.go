package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"holdfast/client"
)

// An HTTP client that logs in with a key in the TPM. Every request of the
// transport can use it; a certificate that is renewed later is picked up.
func Example_httpClient() {
	ctx := context.Background()
	agent, err := client.Dial(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer agent.Close()
	key, err := agent.Key(ctx, "alice")
	if err != nil {
		log.Fatal(err)
	}

	cfg := &tls.Config{RootCAs: exampleRoots()}
	if err := key.ConfigureClient(cfg); err != nil {
		log.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: cfg}
	defer transport.CloseIdleConnections()
	api := &http.Client{Transport: transport, Timeout: time.Minute}

	reply, err := api.Get(os.Getenv("EXAMPLE_SERVER"))
	if err != nil {
		log.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", body)
	// Output: hello alice
}

// A server whose key is behind the agent: the process that talks to the network
// cannot give the key away, whatever happens to it.
func Example_server() {
	ctx := context.Background()
	agent, err := client.Dial(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer agent.Close()
	key, err := agent.Key(ctx, "www")
	if err != nil {
		log.Fatal(err)
	}

	cfg := &tls.Config{}
	if err := key.ConfigureServer(cfg); err != nil {
		log.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		log.Fatal(err)
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "signed in the TPM")
	}))
	defer listener.Close()

	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: exampleRoots(), ServerName: "localhost"}}
	defer transport.CloseIdleConnections()
	reply, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", body)
	// Output: signed in the TPM
}

// A certificate request for a CA. The agent checks that it is for this key.
func ExampleKey_CertificateRequest() {
	ctx := context.Background()
	agent, err := client.Dial(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer agent.Close()
	key, err := agent.Key(ctx, "alice")
	if err != nil {
		log.Fatal(err)
	}
	der, err := key.CertificateRequest(&x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "alice", Organization: []string{"dev"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	fmt.Printf("%.35s\n", block)
	// Output: -----BEGIN CERTIFICATE REQUEST-----
}
