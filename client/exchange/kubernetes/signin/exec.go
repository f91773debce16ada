package signin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Exec is an exec plugin as a kubeconfig names it
// (client.authentication.k8s.io).
type Exec struct {
	Command            string   // already resolved when it was relative to the kubeconfig
	Args               []string //
	Env                []string // NAME=VALUE, besides this process's own
	APIVersion         string   // client.authentication.k8s.io/v1 or /v1beta1
	InstallHint        string
	ProvideClusterInfo bool
	Config             json.RawMessage // of the cluster, for the plugin; may be empty
	InteractiveMode    string          // Never, IfAvailable or Always; IfAvailable when empty
}

// Streams are the user's streams that a plugin gets.
type Streams struct {
	Stdin    *os.File // nil: no terminal
	Stderr   io.Writer
	Terminal bool // whether Stdin is one
}

// Credential is a plugin's answer. It has a token, or a certificate and its
// key, or all of them.
type Credential struct {
	Token                 string
	ClientCertificateData string // PEM
	ClientKeyData         string // PEM
	ExpirationTimestamp   *time.Time
}

// The versions of the plugins' interface that client-go knows.
const (
	groupPrefix = "client.authentication.k8s.io/"
	version1    = groupPrefix + "v1"
	version1b1  = groupPrefix + "v1beta1"
)

// maxOutput is the largest output of a plugin, in bytes.
const maxOutput = 1 << 20

func (e Exec) name() string { return filepath.Base(e.Command) }

// Run runs a plugin as client-go does, with the terminal attached where there is
// one, and returns its credential. It stops the plugin when ctx ends.
func Run(ctx context.Context, e Exec, c *Cluster, s Streams) (Credential, error) {
	interactive, err := e.interactive(s)
	if err != nil {
		return Credential{}, err
	}
	info, err := e.info(c, interactive)
	if err != nil {
		return Credential{}, err
	}
	cmd := exec.CommandContext(ctx, e.Command, e.Args...)
	cmd.Env = append(append(os.Environ(), e.Env...), "KUBERNETES_EXEC_INFO="+string(info))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	out := &limited{left: maxOutput}
	cmd.Stdout, cmd.Stderr = out, s.Stderr
	if interactive {
		cmd.Stdin = s.Stdin
	}
	err = cmd.Run()
	defer clear(out.buffer.Bytes())
	switch {
	case out.left < 0: // first, because the closed pipe ends most plugins by a signal
		return Credential{}, fmt.Errorf("exec plugin %s printed more than %d bytes", e.name(), maxOutput)
	case err != nil:
		return Credential{}, e.failed(ctx, err)
	}
	return e.parse(out.buffer.Bytes())
}

// interactive decides as client-go does whether the plugin gets stdin.
func (e Exec) interactive(s Streams) (bool, error) {
	switch e.InteractiveMode {
	case "Never":
		return false, nil
	case "", "IfAvailable":
		return s.Terminal, nil
	case "Always":
		if !s.Terminal {
			return false, fmt.Errorf("exec plugin %s needs a terminal, and there is none", e.name())
		}
		return true, nil
	}
	return false, fmt.Errorf("exec plugin %s: interactiveMode %.40q is not known", e.name(), e.InteractiveMode)
}

// info is KUBERNETES_EXEC_INFO.
func (e Exec) info(c *Cluster, interactive bool) ([]byte, error) {
	if e.APIVersion != version1 && e.APIVersion != version1b1 {
		return nil, fmt.Errorf("exec plugin %s: apiVersion %.60q is none of %s, %s", e.name(), e.APIVersion, version1, version1b1)
	}
	type cluster struct {
		Server                   string          `json:"server"`
		TLSServerName            string          `json:"tls-server-name,omitempty"`
		CertificateAuthorityData []byte          `json:"certificate-authority-data,omitempty"`
		ProxyURL                 string          `json:"proxy-url,omitempty"`
		DisableCompression       bool            `json:"disable-compression,omitempty"`
		Config                   json.RawMessage `json:"config"`
	}
	type spec struct {
		Cluster     *cluster `json:"cluster,omitempty"`
		Interactive bool     `json:"interactive"`
	}
	in := spec{Interactive: interactive}
	if e.ProvideClusterInfo {
		in.Cluster = &cluster{c.Server, c.TLSServerName, c.CertificateAuthorityData, c.ProxyURL, c.DisableCompression, e.Config}
		if len(e.Config) == 0 {
			in.Cluster.Config = json.RawMessage("null")
		}
	}
	return json.Marshal(map[string]any{"kind": "ExecCredential", "apiVersion": e.APIVersion, "spec": in})
}

// failed returns the error of a plugin that could not be run or failed. The plugin's
// own message is on stderr.
func (e Exec) failed(ctx context.Context, err error) error {
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("exec plugin %s: %w", e.name(), ctx.Err())
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return &MissingError{Command: e.Command, Hint: e.InstallHint}
	case errors.As(err, &exit):
		return fmt.Errorf("exec plugin %s failed with exit code %d", e.name(), exit.ExitCode())
	}
	return fmt.Errorf("exec plugin %s: %w", e.name(), err)
}

// A MissingError says that an exec plugin is not installed.
type MissingError struct {
	Command string
	Hint    string // the kubeconfig's installHint: foreign text of any length
}

// Error names the plugin.
func (e *MissingError) Error() string {
	return fmt.Sprintf("exec plugin %s is not installed", e.Command)
}

// parse reads a plugin's answer. Its errors do not contain the answer.
func (e Exec) parse(out []byte) (Credential, error) {
	var answer struct {
		Kind       string
		APIVersion string
		Status     *Credential
	}
	if err := json.Unmarshal(bytes.TrimSpace(out), &answer); err != nil {
		return Credential{}, fmt.Errorf("exec plugin %s: its output is not an ExecCredential in JSON", e.name())
	}
	c := answer.Status
	switch {
	case answer.Kind != "ExecCredential" || answer.APIVersion != e.APIVersion:
		return Credential{}, fmt.Errorf("exec plugin %s: it answered %.60q, not an ExecCredential of %s", e.name(), answer.APIVersion, e.APIVersion)
	case c == nil || c.Token == "" && c.ClientCertificateData == "" && c.ClientKeyData == "":
		return Credential{}, fmt.Errorf("exec plugin %s: it gave no credential", e.name())
	case (c.ClientCertificateData == "") != (c.ClientKeyData == ""):
		return Credential{}, fmt.Errorf("exec plugin %s: it gave a certificate or a key, but not both", e.name())
	case c.ExpirationTimestamp != nil && time.Now().After(*c.ExpirationTimestamp):
		return Credential{}, fmt.Errorf("exec plugin %s: its credential expired on %s", e.name(), c.ExpirationTimestamp.UTC().Format(time.RFC3339))
	}
	c.Token = strings.TrimSpace(c.Token)
	return *c, nil
}

// limited buffers what is written to it, and fails when it is too much.
type limited struct {
	buffer bytes.Buffer
	left   int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, io.ErrShortWrite
	}
	return l.buffer.Write(p)
}
