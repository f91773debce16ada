package signin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/client/exchange/kubernetes"
	"holdfast/test/apiserver"
)

func clusterOf(server *apiserver.Server) *Cluster {
	return &Cluster{Server: server.URL, CertificateAuthorityData: server.CA}
}

// whoami signs in by a and returns the user that the server sees.
func whoami(t *testing.T, c *Cluster, a Auth) (string, error) {
	t.Helper()
	tr, err := c.Transport(a)
	if err != nil {
		return "", err
	}
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	u, err := (&kubernetes.Client{Server: c.Server, HTTP: tr}).WhoAmI(ctx)
	return u.Username, err
}

// pair returns a client's certificate and key, PEM.
func pair(t *testing.T, server *apiserver.Server, name string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	leaf := server.Certificate(pkix.Name{CommonName: name}, private.Public(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func TestTransport(t *testing.T) {
	server := apiserver.Start(t)
	server.AddToken("hush", apiserver.User{Username: "bot"})
	server.AddPassword("carol", "pass:word")
	certificate, key := pair(t, server, "alice")
	alice, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	for want, auth := range map[string]Auth{
		"bot": {Token: "hush"}, "carol": {Username: "carol", Password: "pass:word"}, "alice": {Certificate: &alice},
	} {
		if got, err := whoami(t, clusterOf(server), auth); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	for name, auth := range map[string]Auth{
		"nobody": {}, "another token": {Token: "hush2"}, "two lines": {Token: "hush\r\nX: y"}, "a colon": {Username: "a:b"},
	} {
		if got, err := whoami(t, clusterOf(server), auth); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

// Nothing is sent to a server that is not the cluster's.
func TestServerIsVerified(t *testing.T) {
	server, other := apiserver.Start(t), apiserver.Start(t)
	server.AddToken("hush", apiserver.User{Username: "bot"})
	tests := map[string]*Cluster{
		"another CA":    {Server: server.URL, CertificateAuthorityData: other.CA},
		"the machine's": {Server: server.URL},
		"another name":  {Server: server.URL, CertificateAuthorityData: server.CA, TLSServerName: "api.example"},
		"no CA":         {Server: server.URL, CertificateAuthorityData: []byte("x")},
		"no HTTPS":      {Server: strings.Replace(server.URL, "https", "http", 1)},
		"a proxy":       {Server: server.URL, CertificateAuthorityData: server.CA, ProxyURL: "ftp://user:hush@proxy:21"},
	}
	for name, c := range tests {
		if got, err := whoami(t, c, Auth{Token: "hush"}); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if n := len(server.Requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	named := &Cluster{Server: server.URL, CertificateAuthorityData: server.CA, TLSServerName: "kubernetes"}
	if got, err := whoami(t, named, Auth{Token: "hush"}); got != "bot" {
		t.Errorf("tls-server-name: got %q, %v", got, err)
	}
	tr, err := clusterOf(server).Transport(Auth{Token: "hush"})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.CloseIdleConnections()
	request, err := http.NewRequest("GET", other.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.RoundTrip(request); err == nil || !strings.Contains(err.Error(), "is not the cluster's server") {
		t.Errorf("a request to another server: got %v", err)
	}
}

func TestProxy(t *testing.T) {
	asked := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	server := apiserver.Start(t)
	c := clusterOf(server)
	c.ProxyURL = proxy.URL
	if _, err := whoami(t, c, Auth{Token: "hush"}); err == nil {
		t.Error("the proxy was not asked")
	}
	if got := <-asked; got != "CONNECT "+strings.TrimPrefix(server.URL, "https://") {
		t.Errorf("the proxy was asked for %s", got)
	}
}
