// Command holdfast-exec-plugin is a Kubernetes credential plugin: kubectl and
// every other program that uses client-go run it to learn how to sign in. It asks
// the holdfast broker, prints one ExecCredential, and ends.
//
// Start at [run]. The kubeconfig says how it is run:
//
//	users:
//	- name: alice
//	  user:
//	    exec:
//	      apiVersion: client.authentication.k8s.io/v1
//	      command: holdfast-exec-plugin
//	      args: [--profile, prod]
//	      interactiveMode: Never
//
// It opens the broker's socket and nothing else, reads no standard input, writes
// no file, and prints either the whole answer or nothing. client-go waits for it
// without a limit of its own, so it sets itself one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"holdfast/client/execcredential"
	"holdfast/internal/printable"
)

// The exit codes, which client-go counts as the label code of
// rest_client_exec_plugin_call_total.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3 // there is no broker, or no agent behind it
	exitDenied      = 4 // policy says no, or the kubeconfig is about another cluster
	exitPerson      = 5 // a person is needed: PIN, touch, confirmation
)

// version is set by the build: -ldflags "-X main.version=v0.1.0".
var version string

func main() {
	// What follows runs for a few milliseconds, and a collection costs one of them.
	debug.SetGCPercent(-1)
	os.Exit(run(os.Args[1:], os.Getenv(execcredential.Variable), os.Stdout, os.Stderr))
}

// A failure is why there is no credential: one fact, one hint, the exit code.
type failure struct {
	code int
	fact string
	hint string
}

func (f *failure) Error() string { return f.fact }

// run does what the command is for and returns its exit code. Nothing is on
// stdout unless it is 0.
func run(args []string, info string, stdout, stderr io.Writer) int {
	if err := harden(); err != nil {
		return report(stderr, err)
	}
	o, err := parse(args)
	if err != nil {
		return report(stderr, err)
	}
	if o.text != "" {
		fmt.Fprint(stdout, o.text)
		return exitDone
	}
	answer, err := credential(o, info, stderr)
	if err != nil {
		return report(stderr, err)
	}
	if _, err := stdout.Write(answer); err != nil {
		return report(stderr, fmt.Errorf("standard output: %w", err))
	}
	return exitDone
}

// credential returns the bytes that answer info.
func credential(o options, info string, stderr io.Writer) ([]byte, error) {
	request, err := execcredential.Parse(info)
	if err != nil {
		return nil, &failure{exitUsage, err.Error(), "kubectl runs this program when a kubeconfig's user names it; `holdfast kubeconfig add` writes one"}
	}
	if o.profile == "" {
		o.profile = request.Cluster.Profile()
	}
	if o.profile == "" {
		return nil, &failure{exitUsage, "no profile is named", "--profile NAME in the user's exec.args; `holdfast kubeconfig list` shows the profiles"}
	}
	b := &broker{path: o.socket, stderr: stderr}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	got, err := b.credential(ctx, cancel, o, request)
	if err != nil {
		return nil, err
	}
	return request.Answer(execcredential.Credential{
		Token: got.Token, Certificate: got.ClientCertificateData, Key: got.ClientKeyData, Expires: got.ExpirationTimestamp,
	}, time.Now())
}

// report tells the person, on one line, and returns the exit code.
func report(stderr io.Writer, err error) int {
	f := &failure{code: exitFailed, fact: err.Error()}
	errors.As(err, &f)
	if f.hint != "" {
		fmt.Fprintf(stderr, "holdfast: error: %s; hint: %s\n", printable.Line(f.fact), printable.Line(f.hint))
	} else {
		fmt.Fprintf(stderr, "holdfast: error: %s\n", printable.Line(f.fact))
	}
	return f.code
}
