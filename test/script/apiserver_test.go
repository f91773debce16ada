package script_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"holdfast/test/apiserver"
)

// bootstrapToken is in bootstrap.token of every script with an API server.
const bootstrapToken = "abcdef.0123456789abcdef"

// startAPIServer starts a stand-in that knows carol of the group dev, and a
// bootstrap token.
func startAPIServer(ts *testscript.TestScript) {
	w := worldOf(ts)
	w.kube = apiserver.Start(scriptTB{ts})
	w.kube.AddToken("hush-carol", apiserver.User{Username: "carol", Groups: []string{"dev", "system:authenticated"}})
	w.kube.AddToken(bootstrapToken, apiserver.User{Username: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers"}})
	ts.Setenv("APISERVER", w.kube.URL)
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: admin
clusters:
- name: kube
  cluster: {server: %q, certificate-authority-data: %s}
contexts:
- name: admin
  context: {cluster: kube, user: carol}
- name: login
  context: {cluster: kube, user: login}
users:
- name: carol
  user: {token: hush-carol}
- name: login
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login, interactiveMode: IfAvailable}
`, w.kube.URL, base64.StdEncoding.EncodeToString(w.kube.CA))
	for name, data := range map[string]string{"kube-ca.pem": string(w.kube.CA), "bootstrap.token": bootstrapToken + "\n", "kubeconfig": config} {
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(data), 0o600))
	}
	ts.Check(os.WriteFile(ts.MkAbs("login"), []byte(loginProgram), 0o700))
}

// loginProgram is an exec plugin, such as one that opens a browser.
const loginProgram = `#!/bin/sh
echo "open https://idp.example in a browser" >&2
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"hush-carol"}}'
`

// kube starts a stand-in for kube-apiserver and its signers, or changes what it
// does.
func kube(ts *testscript.TestScript, neg bool, args []string) {
	refuseNot(ts, neg)
	w := worldOf(ts)
	change := func(f func(*apiserver.Conduct)) { w.kube.Change(f) }
	switch {
	case len(args) == 0:
		startAPIServer(ts)
	case args[0] == "decide" && len(args) > 1:
		change(func(c *apiserver.Conduct) { c.Decision, c.Message = args[1], strings.Join(args[2:], " ") })
	case args[0] == "lifetime" && len(args) == 3: // and how long ago it started
		lifetime, err := time.ParseDuration(args[1])
		ts.Check(err)
		ago, err := time.ParseDuration(args[2])
		ts.Check(err)
		change(func(c *apiserver.Conduct) { c.Lifetime, c.Skew = lifetime, -ago })
	case args[0] == "revoke":
		change(func(c *apiserver.Conduct) { c.Revoked = true })
	case args[0] == "stop":
		w.kube.Stop()
	case args[0] == "approve":
		w.kube.Decide(pending(ts, w.kube), apiserver.Issue)
	case args[0] == "requests":
		fmt.Fprintln(ts.Stdout(), strings.Join(w.kube.Requests(), "\n"))
	default:
		ts.Fatalf("kube %v: no such command", args)
	}
}

// pending waits for a certificate signing request, and returns the newest.
func pending(ts *testscript.TestScript, server *apiserver.Server) string {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		if names := server.RequestNames(); len(names) > 0 {
			return names[len(names)-1]
		}
	}
	ts.Fatalf("nobody asked for a certificate")
	return ""
}
