// Package execcredential speaks the protocol of Kubernetes credential plugins
// (client.authentication.k8s.io): it reads the client's request in
// KUBERNETES_EXEC_INFO, and writes the one object that the client expects on
// standard output.
//
// Start at [Parse] and [Request.Answer]. Some clients of other languages send no
// request: [Assume] stands in for it.
//
// The client's description of its cluster comes from a kubeconfig that anyone may
// have written: it can select a profile and be compared with it, but it proves
// nothing. The package is for programs that start once for each kubectl command, so
// it imports little and reads no clock.
package execcredential

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The versions of the protocol. client-go 1.22 and later speaks V1 and V1Beta1;
// clients before 1.11, and some that are still in use, speak V1Alpha1.
const (
	V1       = "client.authentication.k8s.io/v1"
	V1Beta1  = "client.authentication.k8s.io/v1beta1"
	V1Alpha1 = "client.authentication.k8s.io/v1alpha1"
)

// Version returns the version of the protocol that a short name such as v1beta1, or
// the whole name, stands for, and false when there is none.
func Version(name string) (string, bool) {
	for _, known := range []string{V1, V1Beta1, V1Alpha1} {
		if name == known || group+name == known {
			return known, true
		}
	}
	return "", false
}

// group begins the name of each version.
const group = "client.authentication.k8s.io/"

// Variable is the environment variable that holds the client's request.
const Variable = "KUBERNETES_EXEC_INFO"

// MaxInfo is the longest text that [Parse] reads, in bytes. Linux limits an
// environment string to 128 KiB.
const MaxInfo = 256 << 10

// kind is the only kind of object in the protocol.
const kind = "ExecCredential"

// Request is a client's request: the spec of an ExecCredential.
type Request struct {
	APIVersion   string   // one of the versions above; that of the answer too
	Interactive  bool     // standard input is a terminal that the client has passed on
	Cluster      *Cluster // nil unless the kubeconfig sets provideClusterInfo
	Unauthorized bool     // the server answered 401 to the last credential (only V1Alpha1 reports it)

	// Assumed reports that the request did not come from the client. Such clients may
	// read standard error as part of the answer.
	Assumed bool
}

// Assume returns the request of a client that sends none: an answer in the given
// version, for a cluster that the client does not describe.
func Assume(version string) Request { return Request{APIVersion: version, Assumed: true} }

// Cluster is the cluster that the credential is for. Names and meanings
// are those of kubeconfig files.
type Cluster struct {
	Server                   string          `json:"server"`
	TLSServerName            string          `json:"tls-server-name"`
	InsecureSkipTLSVerify    bool            `json:"insecure-skip-tls-verify"`
	CertificateAuthorityData []byte          `json:"certificate-authority-data"` // PEM
	ProxyURL                 string          `json:"proxy-url"`
	DisableCompression       bool            `json:"disable-compression"`
	Config                   json.RawMessage `json:"config"` // the extension client.authentication.k8s.io/exec
}

// Profile returns the profile that the cluster's extension names, as
// {"profile": "NAME"}, and "" when it names none.
func (c *Cluster) Profile() string {
	if c == nil {
		return ""
	}
	var config struct {
		Profile string `json:"profile"`
	}
	if json.Unmarshal(c.Config, &config) != nil {
		return "" // the extension of another plugin
	}
	return config.Profile
}

// object is an ExecCredential as clients send it. Other members are
// ignored: later clients may send more. The headers of a V1Alpha1 response are among
// them.
type object struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Spec       *struct {
		Interactive bool     `json:"interactive"`
		Cluster     *Cluster `json:"cluster"`
		Response    *struct {
			Code int `json:"code"`
		} `json:"response"`
	} `json:"spec"`
}

// unauthorized is HTTP's 401.
const unauthorized = 401

// Parse reads the value of [Variable]. Its errors never repeat the value. A request
// without a spec comes from the env of a kubeconfig's user, and is assumed.
func Parse(info string) (Request, error) {
	switch {
	case info == "":
		return Request{}, errors.New(Variable + " is empty: a Kubernetes client has to run this program")
	case len(info) > MaxInfo:
		return Request{}, fmt.Errorf("%s is longer than %d bytes", Variable, MaxInfo)
	}
	var o object
	if err := json.Unmarshal([]byte(info), &o); err != nil {
		return Request{}, errors.New(Variable + " is not the JSON of an ExecCredential")
	}
	if o.Kind != kind && (o.Kind != "" || o.Spec != nil) {
		return Request{}, fmt.Errorf("%s does not hold an %s", Variable, kind)
	}
	if version, known := Version(o.APIVersion); !known || version != o.APIVersion {
		return Request{}, fmt.Errorf("%s asks for apiVersion %.80q, which is none of %s, %s, %s", Variable, o.APIVersion, V1, V1Beta1, V1Alpha1)
	}
	if o.Spec == nil {
		return Assume(o.APIVersion), nil
	}
	r := Request{APIVersion: o.APIVersion, Interactive: o.Spec.Interactive, Cluster: o.Spec.Cluster}
	r.Unauthorized = o.Spec.Response != nil && o.Spec.Response.Code == unauthorized
	return r, nil
}

// Credential is the credential for the client: a token, or a certificate with its
// key, or both. Clients use it until Expires and allow for no clock difference, so
// Expires has to be some time before the true end.
type Credential struct {
	Token       string
	Certificate string // PEM, leaf first
	Key         string // PEM
	Expires     time.Time
}

// answer is an ExecCredential as plugins print it. All versions have these
// members; clients ignore the spec of an answer, and V1Alpha1 requires one.
type answer struct {
	Kind       string   `json:"kind"`
	APIVersion string   `json:"apiVersion"`
	Spec       struct{} `json:"spec"`
	Status     status   `json:"status"`
}

type status struct {
	ExpirationTimestamp   string `json:"expirationTimestamp"`
	Token                 string `json:"token,omitempty"`
	ClientCertificateData string `json:"clientCertificateData,omitempty"`
	ClientKeyData         string `json:"clientKeyData,omitempty"`
}

// Answer returns the object that answers r, with a newline at its end. It rejects
// a credential that the client would reject: one without a token and without a pair,
// with half a pair, with a token that no header can carry, or one without an end or
// that has expired at now.
func (r Request) Answer(c Credential, now time.Time) ([]byte, error) {
	if err := c.check(now); err != nil {
		return nil, err
	}
	out, err := json.Marshal(answer{
		Kind: kind, APIVersion: r.APIVersion,
		Status: status{
			ExpirationTimestamp: c.Expires.UTC().Format(time.RFC3339),
			Token:               c.Token, ClientCertificateData: c.Certificate, ClientKeyData: c.Key,
		},
	})
	if err != nil {
		return nil, err
	}
	return append(out, '\n'), nil
}

func (c Credential) check(now time.Time) error {
	switch {
	case (c.Certificate == "") != (c.Key == ""):
		return errors.New("the credential has a certificate or a key, and not both")
	case c.Token == "" && c.Certificate == "":
		return errors.New("the credential is empty")
	case strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the token has characters that no header can carry")
	case c.Expires.IsZero():
		return errors.New("the credential has no expiry time")
	case !c.Expires.After(now):
		return errors.New("the credential has expired already; check this machine's clock")
	}
	return nil
}
