package client_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"holdfast/client"
	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// reported returns whom the agent was told about in its last TLS signature.
func reported(t *testing.T, agent *clienttest.Agent) *agentwire.Reported {
	t.Helper()
	calls := agent.Calls(agentwire.SignTLSClient)
	if len(calls) == 0 {
		t.Fatal("the agent was not asked for a signature")
	}
	var p agentwire.SignTLSClientParameters
	if err := json.Unmarshal(calls[len(calls)-1].Parameters, &p); err != nil {
		t.Fatal(err)
	}
	return p.OnBehalfOf
}

// TestOnBehalfOfReachesTheAgent: what the context of an HTTP request reports is
// with the signature of the handshake that its transport makes.
func TestOnBehalfOfReachesTheAgent(t *testing.T) {
	agent := clienttest.Start(t)
	ca := clienttest.NewCA(t)
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "yes") }))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()}
	server.StartTLS()
	defer server.Close()

	c := dial(t, agent.Socket)
	certify(t, c, ca, "alice")
	key := fetch(t, c, "alice")
	for _, who := range []*agentwire.Reported{{UID: 1000, PID: 42, Start: 7, Unit: "x.service"}, nil, {UID: 1001, PID: 43, Start: 8}} {
		cfg := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		if err := key.ConfigureClient(cfg); err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
		ctx := t.Context()
		if who != nil {
			ctx = client.OnBehalfOf(ctx, *who)
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		transport.CloseIdleConnections()
		got := reported(t, agent)
		if (got == nil) != (who == nil) || got != nil && *got != *who {
			t.Errorf("the agent was told of %+v, want %+v", got, who)
		}
	}
}

// A key that is not used through ConfigureClient has the context that it was given.
func TestOnBehalfOfWithContext(t *testing.T) {
	agent, key := newKey(t, keys.TLSClient, keys.ES256)
	who := agentwire.Reported{UID: 1000, PID: 42, Start: 7}
	key = key.WithContext(client.OnBehalfOf(t.Context(), who))
	if _, err := key.SignMessage(nil, tls13Message(), keys.ECDSAP256SHA256.SignerOpts()); err != nil {
		t.Fatal(err)
	}
	if got := reported(t, agent); got == nil || *got != who {
		t.Errorf("the agent was told of %+v, want %+v", got, who)
	}
}
