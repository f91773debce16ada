package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"
)

// actAs, in the environment, makes the test binary one of the programs below
// instead of running tests: processes of their own that are no kubectl.
const actAs = "HOLDFAST_TEST_ACT_AS"

// programs are what the test binary can be. Each returns its exit status.
var programs = map[string]func() int{
	"requester": requester,
	"shortener": shortener,
}

// act prepares the test binary as a program that reads input, JSON.
func act(t testing.TB, program string, input any) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), actAs+"="+program)
	cmd.Stdin = bytes.NewReader(text)
	return cmd
}

// A request is an HTTP request to the loopback proxy, as any program can make it.
type request struct {
	Address    string // HOST:PORT
	ServerName string
	CA         string // PEM
	Path       string
	Token      string // none when empty
}

// client returns a client for the request's server. It speaks HTTP/2.
func (r request) client() *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(r.CA))
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: r.ServerName, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
	}
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// send sends the request and returns the status code and the body.
func (r request) send(c *http.Client) (int, string, error) {
	q, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://"+r.Address+r.Path, nil)
	if err != nil {
		return 0, "", err
	}
	if r.Token != "" {
		q.Header.Set("Authorization", "Bearer "+r.Token)
	}
	answer, err := c.Do(q)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

// requester sends the request on its standard input. It prints the status code
// and the body.
func requester() int {
	var r request
	if err := json.NewDecoder(os.Stdin).Decode(&r); err != nil {
		fmt.Println(err)
		return 1
	}
	code, body, err := r.send(r.client())
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println(code, body)
	return 0
}

// shortener stands in for holdfast-exec-plugin, runs it, and gives its answer two
// seconds to live, so that client-go asks again without a wait of minutes.
func shortener() int {
	cmd := exec.Command("holdfast-exec-plugin", os.Args[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "shortener:", err)
		return 1
	}
	var answer map[string]any
	if err := json.Unmarshal(out, &answer); err != nil {
		fmt.Fprintln(os.Stderr, "shortener:", err)
		return 1
	}
	status, _ := answer["status"].(map[string]any)
	status["expirationTimestamp"] = time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		return 1
	}
	return 0
}
