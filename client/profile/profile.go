// Package profile reads and writes the broker's profiles: one YAML file for each
// cluster that a key signs in to, named NAME.yaml after the profile. A profile
// names a cluster, a key, and the modes that may be requested; the broker does not
// trust the cluster that a kubeconfig names beside the profile.
//
// Start at [Load] and [Write]. Only root and the broker's own user may be able
// to write a profile's file, because it decides which server a key signs in to. It
// holds no secret, unless its proxy-url has a password.
package profile

import (
	"strings"
	"time"
)

// The modes in which a profile's credential can be asked for.
const (
	ModeProxy       = "proxy"
	ModeCertificate = "certificate"
	ModeToken       = "token"
)

// Domain is the parent of the names by which the loopback proxy knows profiles.
const Domain = "holdfast.internal"

// Profile is one cluster and the key that signs in to it. [Parse] and [Load] return
// complete profiles: a word that the file omits has the default given below.
type Profile struct {
	Name    string   `yaml:"-"`       // the file's name: a DNS label (RFC 1123) of at most MaxName bytes
	Key     string   `yaml:"key"`     // the agent's key, or set of keys
	Modes   []string `yaml:"modes"`   // the modes that may be requested; proxy when not given
	Cluster Cluster  `yaml:"cluster"` //

	Proxy       Proxy       `yaml:"proxy,omitempty"`
	Certificate Certificate `yaml:"certificate,omitempty"`
	Token       Token       `yaml:"token,omitempty"`
	Renewal     Renewal     `yaml:"renewal,omitempty"`
}

// Cluster is the API server, with the names that kubeconfigs use.
type Cluster struct {
	Server                   string `yaml:"server"`                     // https://HOST[:PORT][/PATH]
	CertificateAuthorityData string `yaml:"certificate-authority-data"` // certificates, PEM (not base64)
	TLSServerName            string `yaml:"tls-server-name,omitempty"`
	ProxyURL                 string `yaml:"proxy-url,omitempty"` // http, https or socks5
	DisableCompression       bool   `yaml:"disable-compression,omitempty"`
}

// Proxy configures how the loopback proxy serves the profile.
type Proxy struct {
	Port        int           `yaml:"port,omitempty"`         // a port of its own, for clients that send no SNI; 0 for none
	NoPool      bool          `yaml:"no-pool,omitempty"`      // a handshake, hence a signature, for each request
	IdleTimeout time.Duration `yaml:"idle-timeout,omitempty"` // of upstream connections; 90s when not given
	MaxAge      time.Duration `yaml:"max-age,omitempty"`      // of upstream connections; 1h when not given
}

// Certificate configures the certificates that mode certificate requests.
type Certificate struct {
	SignerName string        `yaml:"signer-name,omitempty"` // kubernetes.io/kube-apiserver-client-kubelet for nodes when not given; nothing for people
	Lifetime   time.Duration `yaml:"lifetime,omitempty"`    // 24h for nodes and 10m for people when not given
}

// Token configures the tokens that mode token requests.
type Token struct {
	Namespace      string        `yaml:"namespace,omitempty"`
	ServiceAccount string        `yaml:"service-account,omitempty"`
	Audiences      []string      `yaml:"audiences,omitempty"` // the API server's own when empty
	Lifetime       time.Duration `yaml:"lifetime,omitempty"`  // 10m when not given
}

// Renewal configures the renewal of the certificate of the profile's key.
type Renewal struct {
	SignerName string        `yaml:"signer-name,omitempty"` // of the CSR; that of the enrolment
	Lifetime   time.Duration `yaml:"lifetime,omitempty"`    // requested; the signer's own when 0
	Fraction   float64       `yaml:"fraction,omitempty"`    // of the lifetime after which to renew; 0.7 when 0
	Jitter     float64       `yaml:"jitter,omitempty"`      // at most this fraction of the lifetime earlier; 0 is none
	NewKey     bool          `yaml:"new-key,omitempty"`     // make a new generation of the key each time
}

// ServerName is the name by which the loopback proxy knows the profile.
func (p *Profile) ServerName() string { return p.Name + "." + Domain }

// Node reports whether a certificate's common name is a node's: only requests of
// nodes have an approver in every cluster.
func Node(commonName string) bool {
	name, is := strings.CutPrefix(commonName, "system:node:")
	return is && name != ""
}
