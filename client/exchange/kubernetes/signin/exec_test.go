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
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/test/apiserver"
	"holdfast/test/pace"
)

// TestMain is the exec plugin of the tests too: PLUGIN says what to print.
func TestMain(m *testing.M) {
	if answer, plugin := os.LookupEnv("PLUGIN"); plugin {
		os.Exit(runPlugin(answer))
	}
	goleak.VerifyTestMain(m)
}

// runPlugin prints an answer, in which %s is the information that it was given.
func runPlugin(answer string) int {
	fmt.Fprintln(os.Stderr, "signing in")
	stdin, _ := io.ReadAll(os.Stdin)
	switch answer {
	case "fail":
		return 7
	case "wait":
		time.Sleep(time.Minute) // until it is ended
	case "flood":
		fmt.Print(strings.Repeat("x", 2*maxOutput)) // more than a pipe holds: it still writes when no process reads
	case "tell":
		info, _ := json.Marshal(os.Getenv("KUBERNETES_EXEC_INFO") + string(stdin) + "," + os.Args[1])
		answer = `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"clientCertificateData":` + string(info) + `,"clientKeyData":"k"}}`
	}
	fmt.Print(answer)
	return 0
}

func plugin(answer string) Exec {
	return Exec{Command: os.Args[0], Args: []string{"arg"}, Env: []string{"PLUGIN=" + answer}, APIVersion: version1, InteractiveMode: "Never"}
}

func answerOf(status string) string {
	return `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":` + status + `}`
}

func TestExec(t *testing.T) {
	server := apiserver.Start(t)
	server.AddToken("hush", apiserver.User{Username: "bot"})
	certificate, key := pair(t, server, "alice")
	both, err := json.Marshal(map[string]string{"clientCertificateData": string(certificate), "clientKeyData": string(key)})
	if err != nil {
		t.Fatal(err)
	}
	for want, status := range map[string]string{"bot": `{"token":"hush","expirationTimestamp":"2999-01-01T00:00:00Z"}`, "alice": string(both)} {
		var stderr bytes.Buffer
		auth, err := clusterOf(server).FromExec(context.Background(), plugin(answerOf(status)), Streams{Stderr: &stderr})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := whoami(t, clusterOf(server), auth); got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		if stderr.String() != "signing in\n" {
			t.Errorf("its stderr came through as %q", stderr.String())
		}
	}
}

// The plugin gets the same KUBERNETES_EXEC_INFO as from client-go.
func TestExecInfo(t *testing.T) {
	c := &Cluster{Server: "https://api:6443", CertificateAuthorityData: []byte("pem"), TLSServerName: "n", ProxyURL: "http://p"}
	const v1 = `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{`
	tests := map[string]struct {
		change func(*Exec)
		want   string
	}{
		"never":        {func(*Exec) {}, v1 + `"interactive":false}},arg`},
		"if available": {func(e *Exec) { e.InteractiveMode = "IfAvailable" }, v1 + `"interactive":true}}typed,arg`},
		"not said":     {func(e *Exec) { e.InteractiveMode = "" }, v1 + `"interactive":true}}typed,arg`},
		"always":       {func(e *Exec) { e.InteractiveMode = "Always" }, v1 + `"interactive":true}}typed,arg`},
		"the cluster": {func(e *Exec) { e.ProvideClusterInfo, e.Config = true, json.RawMessage(`{"a":"b"}`) },
			v1 + `"cluster":{"server":"https://api:6443","tls-server-name":"n","certificate-authority-data":"cGVt","proxy-url":"http://p","config":{"a":"b"}},"interactive":false}},arg`},
		"no config": {func(e *Exec) { e.ProvideClusterInfo = true },
			v1 + `"cluster":{"server":"https://api:6443","tls-server-name":"n","certificate-authority-data":"cGVt","proxy-url":"http://p","config":null},"interactive":false}},arg`},
	}
	t.Setenv("KUBERNETES_EXEC_INFO", "inherited")
	for name, test := range tests {
		e := plugin("tell")
		test.change(&e)
		credential, err := Run(context.Background(), e, c, Streams{Stdin: typed(t), Stderr: io.Discard, Terminal: true})
		if got := credential.ClientCertificateData; err != nil || got != test.want {
			t.Errorf("%s: got %s, %v\nwant %s", name, got, err, test.want)
		}
	}
}

// typed stands in for a terminal with typed input.
func typed(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err == nil {
		_, err = w.WriteString("typed")
		w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestExecFaults(t *testing.T) {
	tests := map[string]struct {
		exec Exec
		want string
	}{
		"it fails":           {plugin("fail"), "failed with exit code 7"},
		"too much":           {plugin("flood"), "printed more than"},
		"nothing":            {plugin(""), "not an ExecCredential"},
		"text":               {plugin("hush"), "not an ExecCredential"},
		"two objects":        {plugin(answerOf(`{"token":"hush"}`) + "x"), "not an ExecCredential"},
		"another version":    {plugin(strings.Replace(answerOf(`{"token":"hush"}`), "/v1", "/v1beta1", 1)), "it answered"},
		"no status":          {plugin(answerOf("null")), "no credential"},
		"an empty status":    {plugin(answerOf("{}")), "no credential"},
		"half":               {plugin(answerOf(`{"clientKeyData":"hush"}`)), "not both"},
		"expired":            {plugin(answerOf(`{"token":"hush","expirationTimestamp":"2001-01-01T00:00:00Z"}`)), "expired on 2001"},
		"no pair":            {plugin(answerOf(`{"clientCertificateData":"hush","clientKeyData":"hush"}`)), "do not match"},
		"not installed":      {Exec{Command: "hold-not-there", APIVersion: version1, InstallHint: "brew"}, "is not installed"},
		"not there":          {Exec{Command: "/hold/not/there", APIVersion: version1}, "is not installed"},
		"v1alpha1":           {Exec{Command: "x", APIVersion: groupPrefix + "v1alpha1"}, "is none of"},
		"no terminal":        {Exec{Command: "x", APIVersion: version1, InteractiveMode: "Always"}, "needs a terminal"},
		"an interactiveMode": {Exec{Command: "x", APIVersion: version1, InteractiveMode: "Sometimes"}, "is not known"},
	}
	for name, test := range tests {
		auth, err := (&Cluster{}).FromExec(context.Background(), test.exec, Streams{Stderr: io.Discard})
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hush") || auth.Token != "" {
			t.Errorf("%s: got %+v, %v, want %q", name, auth, err, test.want)
		}
	}
	if e := new(MissingError); !errors.As(tests["not installed"].exec.failed(context.Background(), exec.ErrNotFound), &e) || e.Hint != "brew" {
		t.Errorf("got %+v, want the install hint", e)
	}
}

// A plugin that hangs ends with the command that runs it.
func TestExecEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	started := time.Now()
	_, err := Run(ctx, plugin("wait"), &Cluster{}, Streams{Stderr: io.Discard})
	if !errors.Is(err, context.DeadlineExceeded) || pace.Over(t, time.Since(started), 20*time.Second) {
		t.Errorf("got %v after %s", err, time.Since(started))
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(answerOf(`{"token":"hush"}`)))
	f.Add([]byte(answerOf(`{"clientCertificateData":"a","clientKeyData":"b","expirationTimestamp":"2999-01-01T00:00:00Z"}`)))
	f.Add([]byte(`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":1}}`))
	f.Fuzz(func(t *testing.T, out []byte) {
		c, err := plugin("").parse(out)
		if err != nil && (c.Token != "" || c.ClientKeyData != "") {
			t.Errorf("a credential with the error %v", err)
		}
		if err == nil && c.Token == "" && c.ClientKeyData == "" {
			t.Error("an empty credential")
		}
	})
}
