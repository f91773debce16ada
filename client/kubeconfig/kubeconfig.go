// Package kubeconfig reads the files that list clusters and users for Kubernetes
// clients, as kubectl reads them: several files are merged into one, paths in them
// are relative to the file, and of two entries with one name the first file's wins.
//
// Start at [Load]. The package writes nothing: package edit below it does, which
// only the holdfast command imports. Files are not trusted: the author of a
// kubeconfig chooses its content.
//
// The types are those of clientcmd.k8s.io v1 (client-go tools/clientcmd/api/v1),
// with its names.
package kubeconfig

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"
)

// Config is the merged content of the files.
type Config struct {
	Files          []string // the files that were read, in order
	CurrentContext string
	CurrentOrigin  string // the file that sets it; empty when none does
	Clusters       map[string]*Cluster
	Users          map[string]*AuthInfo
	Contexts       map[string]*Context
}

// Cluster describes how to reach a cluster.
type Cluster struct {
	Server                   string           `json:"server" yaml:"server"`
	TLSServerName            string           `json:"tls-server-name,omitempty" yaml:"tls-server-name,omitempty"`
	InsecureSkipTLSVerify    bool             `json:"insecure-skip-tls-verify,omitempty" yaml:"insecure-skip-tls-verify,omitempty"`
	CertificateAuthority     string           `json:"certificate-authority,omitempty" yaml:"certificate-authority,omitempty"`
	CertificateAuthorityData Data             `json:"certificate-authority-data,omitempty" yaml:"certificate-authority-data,omitempty"` // PEM; before CertificateAuthority
	ProxyURL                 string           `json:"proxy-url,omitempty" yaml:"proxy-url,omitempty"`
	DisableCompression       bool             `json:"disable-compression,omitempty" yaml:"disable-compression,omitempty"`
	Extensions               []NamedExtension `json:"extensions,omitempty" yaml:"extensions,omitempty"`

	Origin string `json:"-" yaml:"-"` // the file that defines it
}

// AuthInfo describes how a user signs in.
type AuthInfo struct {
	ClientCertificate     string              `json:"client-certificate,omitempty" yaml:"client-certificate,omitempty"`
	ClientCertificateData Data                `json:"client-certificate-data,omitempty" yaml:"client-certificate-data,omitempty"` // PEM
	ClientKey             string              `json:"client-key,omitempty" yaml:"client-key,omitempty"`
	ClientKeyData         Data                `json:"client-key-data,omitempty" yaml:"client-key-data,omitempty"` // PEM
	Token                 string              `json:"token,omitempty" yaml:"token,omitempty"`
	TokenFile             string              `json:"tokenFile,omitempty" yaml:"tokenFile,omitempty"` // before Token
	Impersonate           string              `json:"as,omitempty" yaml:"as,omitempty"`
	ImpersonateUID        string              `json:"as-uid,omitempty" yaml:"as-uid,omitempty"`
	ImpersonateGroups     []string            `json:"as-groups,omitempty" yaml:"as-groups,omitempty"`
	ImpersonateUserExtra  map[string][]string `json:"as-user-extra,omitempty" yaml:"as-user-extra,omitempty"`
	Username              string              `json:"username,omitempty" yaml:"username,omitempty"`
	Password              string              `json:"password,omitempty" yaml:"password,omitempty"`
	AuthProvider          *AuthProviderConfig `json:"auth-provider,omitempty" yaml:"auth-provider,omitempty"`
	Exec                  *ExecConfig         `json:"exec,omitempty" yaml:"exec,omitempty"`
	Extensions            []NamedExtension    `json:"extensions,omitempty" yaml:"extensions,omitempty"`

	Origin string `json:"-" yaml:"-"` // the file that defines it
}

// Context is a cluster, a user and a namespace together.
type Context struct {
	Cluster    string           `json:"cluster" yaml:"cluster"`
	AuthInfo   string           `json:"user" yaml:"user"`
	Namespace  string           `json:"namespace,omitempty" yaml:"namespace,omitempty"`
	Extensions []NamedExtension `json:"extensions,omitempty" yaml:"extensions,omitempty"`

	Origin string `json:"-" yaml:"-"` // the file that defines it
}

// NamedExtension is the data of another program.
type NamedExtension struct {
	Name      string `json:"name" yaml:"name"`
	Extension any    `json:"extension" yaml:"extension"`
}

// AuthProviderConfig is a plugin of the kind that client-go no longer supports.
type AuthProviderConfig struct {
	Name   string            `json:"name" yaml:"name"`
	Config map[string]string `json:"config" yaml:"config"`
}

// ExecConfig is a program that prints a credential.
type ExecConfig struct {
	APIVersion         string       `json:"apiVersion,omitempty" yaml:"apiVersion,omitempty"`
	Command            string       `json:"command" yaml:"command"`
	Args               []string     `json:"args" yaml:"args"`
	Env                []ExecEnvVar `json:"env,omitempty" yaml:"env,omitempty"`
	InstallHint        string       `json:"installHint,omitempty" yaml:"installHint,omitempty"`
	ProvideClusterInfo bool         `json:"provideClusterInfo" yaml:"provideClusterInfo"`
	InteractiveMode    string       `json:"interactiveMode,omitempty" yaml:"interactiveMode,omitempty"`
}

// ExecEnvVar is a variable in the program's environment.
type ExecEnvVar struct {
	Name  string `json:"name" yaml:"name"`
	Value string `json:"value" yaml:"value"`
}

// Data is bytes that files hold as base64.
type Data []byte

// UnmarshalYAML decodes base64; line breaks in it do not count.
func (d *Data) UnmarshalYAML(node *yaml.Node) error {
	var text string
	if err := node.Decode(&text); err != nil {
		return err
	}
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		// The text may be a private key: it is not shown.
		return fmt.Errorf("line %d: it is not base64", node.Line)
	}
	*d = decoded
	return nil
}

// MarshalYAML encodes base64.
func (d Data) MarshalYAML() (any, error) { return base64.StdEncoding.EncodeToString(d), nil }

// Authority returns the certificates of the cluster's CA, PEM: those in the file
// itself, else those of the file that it names. It is empty when the cluster
// names none.
func (c *Cluster) Authority() ([]byte, error) {
	if len(c.CertificateAuthorityData) > 0 || c.CertificateAuthority == "" {
		return bytes.Clone(c.CertificateAuthorityData), nil
	}
	data, err := os.ReadFile(c.CertificateAuthority)
	if err != nil {
		return nil, fmt.Errorf("certificate-authority: %w", err)
	}
	return data, nil
}

// Static names the words of a user's credentials that make client-go skip exec
// without a message (rest.Config.UpdateTransportConfig), in the order in which they
// are looked at. It is empty when exec is run.
func (a *AuthInfo) Static() []string {
	var words []string
	for _, w := range []struct {
		word  string
		given bool
	}{
		{"token", a.Token != ""}, {"tokenFile", a.TokenFile != ""}, {"username", a.Username != ""}, {"password", a.Password != ""},
		{"client-certificate", a.ClientCertificate != ""}, {"client-certificate-data", len(a.ClientCertificateData) > 0},
	} {
		if w.given {
			words = append(words, w.word)
		}
	}
	return words
}
