// Command holdfast-exec-plugin is a Kubernetes credential plugin: kubectl and
// every other program that uses client-go run it to get a credential. It asks
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
// The program opens only the broker's socket, reads no standard input, writes no
// file, and prints either the whole answer or nothing. client-go waits for it
// without a timeout, so the program has its own.
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
	"holdfast/internal/brokerwire"
	"holdfast/internal/printable"
)

// The exit codes, which client-go counts as the label code of
// rest_client_exec_plugin_call_total.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3 // no broker answers, or the broker finds no agent
	exitDenied      = 4 // the policy denies it, or the kubeconfig is about another cluster
	exitPerson      = 5 // a user has to act: PIN, touch, confirmation
)

// version is set by the build: -ldflags "-X main.version=v0.1.0".
var version string

func main() {
	// The program runs for a few milliseconds, and a garbage collection takes one.
	debug.SetGCPercent(-1)
	os.Exit(run(os.Args[1:], os.Getenv(execcredential.Variable), os.Stdout, os.Stderr))
}

// A failure says why there is no credential: one fact, one hint, the exit code.
type failure struct {
	code int
	fact string
	hint string
}

func (f *failure) Error() string { return f.fact }

// notRunning is the failure that no broker listens.
type notRunning struct{ *failure }

func (n notRunning) Unwrap() error { return n.failure }

// run runs the command and returns its exit code. It writes to stdout only when
// the code is 0.
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

// credential returns the answer to the client's request info: an ExecCredential.
func credential(o options, info string, stderr io.Writer) ([]byte, error) {
	request, err := execcredential.Assume(o.apiVersion), error(nil)
	if info != "" {
		request, err = execcredential.Parse(info)
	}
	if err != nil {
		return nil, &failure{exitUsage, err.Error(), "kubectl runs this program when a kubeconfig's user names it; `holdfast kubeconfig add` writes one"}
	}
	if request.Assumed {
		stderr = io.Discard // of what is no error: a client may read it with the answer
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
	if down := (notRunning{}); errors.As(err, &down) && o.mode == brokerwire.ModeProxy && !request.Assumed {
		report(stderr, err)
		got, err = placeholder(), nil
	}
	if err != nil {
		return nil, err
	}
	return request.Answer(execcredential.Credential{
		Token: got.Token, Certificate: got.ClientCertificateData, Key: got.ClientKeyData, Expires: got.ExpirationTimestamp,
	}, time.Now())
}

// placeholder returns a credential that opens nothing, for a client of the proxy when no
// broker listens. After a failure client-go would run the plugin again for each request,
// five times for one command of kubectl; with it, the next error is that the proxy does
// not listen either. A proxy that has come back rejects it, and client-go then asks again.
func placeholder() *brokerwire.Credential {
	return &brokerwire.Credential{Token: brokerwire.Placeholder, ExpirationTimestamp: time.Now().Add(placeholderTime)}
}

// placeholderTime is how long a client takes no broker for granted.
const placeholderTime = 5 * time.Second

// report writes one line for the user and returns the exit code.
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
