package main

import (
	"fmt"
	"runtime"
	"strings"

	"holdfast/client/execcredential"
	"holdfast/internal/brokerwire"
)

const help = `Usage: holdfast-exec-plugin --profile NAME [--mode proxy|certificate|token]
                            [--api-version VERSION] [--socket PATH]

A Kubernetes credential plugin. kubectl runs it; it asks the holdfast broker for a
credential of the profile and prints an ExecCredential.

  --profile NAME  the broker's profile; not needed where the kubeconfig's cluster
                  names it in its extension client.authentication.k8s.io/exec
  --mode MODE     proxy (a ticket for the loopback proxy; the default), certificate
                  or token
  --api-version VERSION
                  v1 (the default), v1beta1 or v1alpha1: the version of the answer
                  to a client that sets no KUBERNETES_EXEC_INFO
  --socket PATH   the broker's socket, instead of HOLDFAST_BROKER_SOCKET and the
                  usual places
  --version       print the version and exit

Exit codes: 0 done, 1 failed, 2 usage, 3 broker or agent unreachable, 4 denied,
5 a user has to act.

Example: what kubectl does
  KUBERNETES_EXEC_INFO='{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":false}}' \
    holdfast-exec-plugin --profile prod
`

// options is the command line.
type options struct {
	profile, mode, socket string
	apiVersion            string // of the answer to a client that sends no request
	text                  string // help or version to print; empty otherwise
}

// parse reads the command line. The flag package would take a tenth of this
// program's whole run.
func parse(args []string) (options, error) {
	o := options{mode: brokerwire.ModeProxy, apiVersion: execcredential.V1}
	for len(args) > 0 {
		name, value, has := strings.Cut(args[0], "=")
		args = args[1:]
		switch strings.TrimPrefix(name, "-") {
		case "-help", "help", "h":
			o.text = help
			return o, nil
		case "-version", "version":
			o.text = fmt.Sprintf("holdfast-exec-plugin %s (%s)\n", version, runtime.Version())
			return o, nil
		}
		into := o.named(name)
		if into == nil {
			return o, &failure{exitUsage, fmt.Sprintf("unknown argument %.80q", name), "holdfast-exec-plugin --help lists them"}
		}
		if !has {
			if len(args) == 0 {
				return o, &failure{exitUsage, name + " needs a value", "holdfast-exec-plugin --help shows how it is used"}
			}
			value, args = args[0], args[1:]
		}
		*into = value
	}
	version, known := execcredential.Version(o.apiVersion)
	if !known {
		return o, &failure{exitUsage, fmt.Sprintf("there is no API version %.80q", o.apiVersion), "--api-version is v1, v1beta1 or v1alpha1"}
	}
	o.apiVersion = version
	switch o.mode {
	case brokerwire.ModeProxy, brokerwire.ModeCertificate, brokerwire.ModeToken:
		return o, nil
	}
	return o, &failure{exitUsage, fmt.Sprintf("there is no mode %.80q", o.mode), "--mode is proxy, certificate or token"}
}

func (o *options) named(name string) *string {
	switch strings.TrimPrefix(name, "-") {
	case "-profile", "profile":
		return &o.profile
	case "-mode", "mode":
		return &o.mode
	case "-api-version", "api-version":
		return &o.apiVersion
	case "-socket", "socket":
		return &o.socket
	}
	return nil
}
