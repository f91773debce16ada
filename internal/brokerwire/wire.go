// Package brokerwire holds the Go types of the varlink interface io.holdfast.Broker:
// the parameters and replies of its methods; package fault has its errors. The
// broker and its callers share it; a test holds it to the interface file, which is
// the specification and says what each member means.
package brokerwire

import (
	"time"

	"holdfast/internal/metrics"
)

// Interface is the name of the broker's varlink interface.
const Interface = "io.holdfast.Broker"

// The methods, as they are called on the wire.
const (
	GetCredential = Interface + ".GetCredential"
	Forget        = Interface + ".Forget"
	GetStatus     = Interface + ".GetStatus"
	GetMetrics    = Interface + ".GetMetrics"
)

// The modes of a credential.
const (
	ModeProxy       = "proxy"
	ModeCertificate = "certificate"
	ModeToken       = "token"
)

// Placeholder is the token that the plugin gives to a client of the proxy when no broker
// listens. It opens nothing.
const Placeholder = "holdfast-no-ticket"

// Cluster describes, in the words of a client, the cluster that it wants a credential for.
type Cluster struct {
	Server                   string `json:"server"`
	TLSServerName            string `json:"tlsServerName,omitempty"`
	InsecureSkipTLSVerify    bool   `json:"insecureSkipTLSVerify,omitempty"`
	CertificateAuthorityData []byte `json:"certificateAuthorityData,omitempty"` // PEM
	ProxyURL                 string `json:"proxyURL,omitempty"`
	DisableCompression       bool   `json:"disableCompression,omitempty"`
}

// Credential is either a token, or a certificate with its key.
type Credential struct {
	Token                 string    `json:"token,omitempty"`
	ClientCertificateData string    `json:"clientCertificateData,omitempty"` // PEM
	ClientKeyData         string    `json:"clientKeyData,omitempty"`         // PEM
	ExpirationTimestamp   time.Time `json:"expirationTimestamp"`
}

// Empty is the parameters or the reply of a method that has none.
type Empty struct{}

// GetCredentialParameters is the parameters of GetCredential.
type GetCredentialParameters struct {
	Profile      string   `json:"profile"`
	Mode         string   `json:"mode"`
	Cluster      *Cluster `json:"cluster,omitempty"`
	Unauthorized bool     `json:"unauthorized,omitempty"`
}

// GetCredentialReply is one reply of GetCredential. The last one has the
// credential; those before say what the broker waits for.
type GetCredentialReply struct {
	Credential *Credential `json:"credential,omitempty"`
	Waiting    string      `json:"waiting,omitempty"`
}

// ForgetParameters is the parameters of Forget.
type ForgetParameters struct {
	Profile string `json:"profile,omitempty"`
}

// Endpoint is the loopback listener of the proxy.
type Endpoint struct {
	Address     string `json:"address"`     // 127.0.0.1:PORT
	Certificate string `json:"certificate"` // PEM
	Key         string `json:"key"`         // where its private key is kept
}

// Profile is the state of a profile for its users.
type Profile struct {
	Name          string   `json:"name"`
	Server        string   `json:"server"`
	Key           string   `json:"key"`
	Modes         []string `json:"modes"`
	Address       string   `json:"address"`
	Certificate   string   `json:"certificate"`
	TLSServerName string   `json:"tlsServerName"`
	Connections   int      `json:"connections"`
	Tickets       int      `json:"tickets"`
	Minted        int      `json:"minted"`
	Signatures    int      `json:"signatures"`
	Fault         string   `json:"fault,omitempty"`
	Hint          string   `json:"hint,omitempty"`
}

// Notice is one fact that status shows, and the next step.
type Notice struct {
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// GetStatusReply is the reply of GetStatus.
type GetStatusReply struct {
	Version     string    `json:"version"`
	PID         int       `json:"pid"`
	Started     time.Time `json:"started"`
	Mode        string    `json:"mode"` // user or system
	Policy      string    `json:"policy"`
	AgentSocket string    `json:"agentSocket"`
	Endpoint    Endpoint  `json:"endpoint"`
	Profiles    []Profile `json:"profiles"`
	Notices     []Notice  `json:"notices"`
}

// GetMetricsReply is the reply of GetMetrics.
type GetMetricsReply struct {
	Metrics []metrics.Metric `json:"metrics"`
}
