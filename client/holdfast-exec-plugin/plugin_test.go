package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/client/execcredential"
	"holdfast/internal/brokerwire"
	"holdfast/internal/varlink"
	"holdfast/test/daemon"
)

func TestMain(m *testing.M) {
	code := m.Run()
	daemon.Remove()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const info = `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"server":"https://prod:6443","tls-server-name":"api","certificate-authority-data":"QQ==","config":{"profile":"from-cluster"}},"interactive":false}}`

// standIn is a broker that answers as the test says.
type standIn struct {
	socket string
	asked  chan brokerwire.GetCredentialParameters
}

// answering starts a broker; n counts its calls from 1.
func answering(t *testing.T, socket string, answer func(call *varlink.Call, n int64) error) *standIn {
	t.Helper()
	if socket == "" {
		socket = filepath.Join(t.TempDir(), "broker.sock")
	}
	b := &standIn{socket: socket, asked: make(chan brokerwire.GetCredentialParameters, 64)}
	listener, err := net.Listen("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	service := &varlink.Service{Interfaces: []varlink.Interface{{Name: brokerwire.Interface, Methods: map[string]varlink.Method{
		"GetCredential": func(_ context.Context, call *varlink.Call) error {
			var p brokerwire.GetCredentialParameters
			if err := call.Decode(&p); err != nil {
				return err
			}
			b.asked <- p
			return answer(call, calls.Add(1))
		},
	}}}}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { service.ServeConn(ctx, conn) })
		}
	})
	t.Cleanup(serving.Wait)
	t.Cleanup(cancel)
	t.Cleanup(func() { listener.Close() })
	return b
}

func ticket() brokerwire.GetCredentialReply {
	return brokerwire.GetCredentialReply{Credential: &brokerwire.Credential{Token: "the-ticket", ExpirationTimestamp: time.Now().Add(time.Hour)}}
}

func give(call *varlink.Call, _ int64) error { return call.Reply(ticket()) }

// plugin runs the command in this process.
func plugin(info string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, info, &out, &errs)
	return code, out.String(), errs.String()
}

func TestTicket(t *testing.T) {
	b := answering(t, "", give)
	code, stdout, stderr := plugin(info, "--profile", "prod", "--socket", b.socket)
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	var got struct {
		APIVersion string
		Status     struct{ Token, ExpirationTimestamp string }
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || got.APIVersion != execcredential.V1 || got.Status.Token != "the-ticket" || got.Status.ExpirationTimestamp == "" {
		t.Errorf("got %s, %v", stdout, err)
	}
	p := <-b.asked
	if p.Profile != "prod" || p.Mode != brokerwire.ModeProxy || p.Cluster != nil || p.Unauthorized {
		t.Errorf("asked for %+v", p)
	}
}

// Modes that hand out something of use elsewhere pass on what the client says of
// the cluster, all of it, for the broker to hold against the profile.
func TestCluster(t *testing.T) {
	b := answering(t, "", give)
	hostile := strings.Replace(info, `"tls-server-name":"api"`, `"tls-server-name":"api","insecure-skip-tls-verify":true,"proxy-url":"http://evil"`, 1)
	if code, _, stderr := plugin(hostile, "--profile=prod", "--mode=token", "--socket="+b.socket); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	p := <-b.asked
	want := brokerwire.Cluster{Server: "https://prod:6443", TLSServerName: "api", InsecureSkipTLSVerify: true, CertificateAuthorityData: []byte("A"), ProxyURL: "http://evil"}
	if p.Cluster == nil || fmt.Sprintf("%+v", *p.Cluster) != fmt.Sprintf("%+v", want) {
		t.Errorf("got %+v, want %+v", p.Cluster, want)
	}
}

func TestProfileFromCluster(t *testing.T) {
	b := answering(t, "", give)
	if code, _, stderr := plugin(info, "--socket", b.socket); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if p := <-b.asked; p.Profile != "from-cluster" {
		t.Errorf("asked for %q", p.Profile)
	}
	code, stdout, stderr := plugin(`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1"}`, "--socket", b.socket)
	if code != exitUsage || stdout != "" || !strings.Contains(stderr, "no profile is named") {
		t.Errorf("without a profile: exit %d, %q, %q", code, stdout, stderr)
	}
}

func TestUnauthorized(t *testing.T) {
	b := answering(t, "", give)
	old := `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1alpha1","spec":{"response":{"code":401}}}`
	if code, stdout, stderr := plugin(old, "--profile", "p", "--socket", b.socket); code != 0 || !strings.Contains(stdout, "v1alpha1") {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if p := <-b.asked; !p.Unauthorized {
		t.Error("the 401 was not passed on")
	}
}

// A client that sends no request gets an answer in the version that the entry names,
// in its arguments or its environment. Such clients may read stderr as part of it.
func TestNoRequest(t *testing.T) {
	b := answering(t, "", func(call *varlink.Call, _ int64) error {
		if err := call.Continue(brokerwire.GetCredentialReply{Waiting: "a touch"}); err != nil {
			return err
		}
		return call.Reply(ticket())
	})
	for _, c := range []struct {
		info string
		args []string
		want string
	}{
		{"", nil, execcredential.V1},
		{"", []string{"--api-version", "v1beta1"}, execcredential.V1Beta1},
		{"", []string{"--api-version=" + execcredential.V1Alpha1}, execcredential.V1Alpha1},
		{`{"apiVersion":"client.authentication.k8s.io/v1beta1"}`, nil, execcredential.V1Beta1},
		{`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1"}`, []string{"--api-version", "v1beta1"}, execcredential.V1},
	} {
		code, stdout, stderr := plugin(c.info, append(c.args, "--profile", "p", "--socket", b.socket)...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, `"apiVersion":"`+c.want+`"`) {
			t.Errorf("%q, %q: exit %d, %q, %q; want an answer in %s alone", c.info, c.args, code, stdout, stderr, c.want)
		}
	}
	// The plugin names the fault.
	code, stdout, stderr := plugin("", "--profile", "p", "--socket", filepath.Join(t.TempDir(), "none.sock"))
	if code != exitUnreachable || stdout != "" || strings.Count(stderr, "\n") != 1 {
		t.Errorf("without a broker: exit %d, %q, %q", code, stdout, stderr)
	}
}

// Every error writes one line to stderr and nothing to stdout, and has its exit code.
func TestErrors(t *testing.T) {
	broker := func(kind, message, hint string) error {
		parameters, _ := json.Marshal(map[string]string{"message": message, "hint": hint})
		return &varlink.Error{Name: brokerwire.Interface + "." + kind, Parameters: parameters}
	}
	cases := map[string]struct {
		answer error
		code   int
		want   string
	}{
		"denied":           {broker("Denied", "there is no profile", "look"), exitDenied, "there is no profile; hint: look"},
		"PIN":              {broker("PINRequired", "the key wants its PIN", "holdfast unlock"), exitPerson, "wants its PIN"},
		"blocked":          {broker("PINBlocked", "blocked", "h"), exitPerson, "blocked"},
		"touch":            {broker("TouchTimeout", "nobody touched", "h"), exitPerson, "nobody touched"},
		"confirm":          {broker("ConfirmationRequired", "nobody said yes", "h"), exitPerson, "nobody said yes"},
		"agent":            {broker("AgentUnreachable", "no agent", "h"), exitUnreachable, "no agent"},
		"upstream":         {broker("Upstream", "connection refused", ""), exitFailed, "connection refused"},
		"two lines":        {broker("Internal", "a\nb\x1b[2J", ""), exitFailed, "a?b?[2J"},
		"a later kind":     {broker("OnFire", "it burns", "h"), exitFailed, "it burns; hint: h"},
		"a kind alone":     {broker("OnFire", "", ""), exitFailed, "OnFire"},
		"later parameters": {varlink.NewError(varlink.InvalidParameter, "parameter", "cluster"), exitFailed, "cluster"},
	}
	for name, c := range cases {
		b := answering(t, "", func(*varlink.Call, int64) error { return c.answer })
		code, stdout, stderr := plugin(info, "--profile", "p", "--socket", b.socket)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want exit %d and one line that says %q", name, code, stdout, stderr, c.code, c.want)
		}
	}
}

func TestUsage(t *testing.T) {
	cases := map[string]struct {
		info string
		args []string
		want string
	}{
		"unknown argument": {info, []string{"--kubeconfig", "x"}, "unknown argument"},
		"no value":         {info, []string{"--profile"}, "needs a value"},
		"mode":             {info, []string{"--mode", "sudo"}, `no mode "sudo"`},
		"by hand":          {"", nil, "no profile is named"},
		"no such version":  {"", []string{"--profile", "p", "--api-version", "v2"}, `no API version "v2"`},
		"two requests":     {`{"apiVersion":"client.authentication.k8s.io/v1","spec":{}}`, []string{"--profile", "p"}, "does not hold an ExecCredential"},
		"other version":    {strings.Replace(info, "/v1", "/v3", 1), []string{"--profile", "p"}, "v3"},
		"a mebibyte":       {strings.Repeat("a", 1<<20), []string{"--profile", "p"}, "longer than"},
	}
	for name, c := range cases {
		code, stdout, stderr := plugin(c.info, c.args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", name, code, stdout, stderr)
		}
	}
}

func TestText(t *testing.T) {
	for arg, want := range map[string]string{"--help": "Exit codes", "-h": "Exit codes", "--version": "holdfast-exec-plugin "} {
		if code, stdout, stderr := plugin("", arg); code != 0 || !strings.Contains(stdout, want) || stderr != "" {
			t.Errorf("%s: exit %d, %q, %q", arg, code, stdout, stderr)
		}
	}
}

// A credential that a client would refuse is not printed.
func TestBadCredential(t *testing.T) {
	for name, c := range map[string]*brokerwire.Credential{
		"none":   nil,
		"empty":  {ExpirationTimestamp: time.Now().Add(time.Hour)},
		"half":   {ClientKeyData: "k", ExpirationTimestamp: time.Now().Add(time.Hour)},
		"over":   {Token: "t", ExpirationTimestamp: time.Now().Add(-time.Second)},
		"header": {Token: "t\r\nHost: evil", ExpirationTimestamp: time.Now().Add(time.Hour)},
	} {
		b := answering(t, "", func(call *varlink.Call, _ int64) error {
			return call.Reply(brokerwire.GetCredentialReply{Credential: c})
		})
		if code, stdout, stderr := plugin(info, "--profile", "p", "--socket", b.socket); code != exitFailed || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, %q", name, code, stdout, stderr)
		}
	}
}

// A broker that is being restarted is asked again.
func TestRestart(t *testing.T) {
	lose := func(call *varlink.Call, n int64) error {
		if n < 3 {
			return fmt.Errorf("ends the connection")
		}
		return call.Reply(ticket())
	}
	b := answering(t, "", lose)
	if code, _, stderr := plugin(info, "--profile", "p", "--socket", b.socket); code != 0 || len(b.asked) != 3 {
		t.Errorf("exit %d after %d calls: %s", code, len(b.asked), stderr)
	}
	late := filepath.Join(t.TempDir(), "broker.sock")
	done := make(chan int)
	go func() {
		code, _, _ := plugin(info, "--profile", "p", "--socket", late)
		done <- code
	}()
	answering(t, late, give)
	if code := <-done; code != 0 {
		t.Errorf("a broker that comes up: exit %d", code)
	}
}

func TestAbsent(t *testing.T) {
	started := time.Now()
	code, stdout, stderr := plugin(info, "--profile", "p", "--mode", "token", "--socket", filepath.Join(t.TempDir(), "none.sock"))
	if code != exitUnreachable || stdout != "" || !strings.Contains(stderr, "no broker listens") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	// client-go would run the plugin again and again; the proxy is not there either.
	code, stdout, stderr = plugin(info, "--profile", "p", "--socket", filepath.Join(t.TempDir(), "none.sock"))
	if code != exitDone || !strings.Contains(stdout, `"token":"`+brokerwire.Placeholder+`"`) || !strings.Contains(stderr, "no broker listens") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("mode proxy: exit %d, %q, %q", code, stdout, stderr)
	}
	if d := time.Since(started); d > 5*time.Second {
		t.Errorf("it took %s", d)
	}
	t.Setenv("SUDO_UID", "4711")
	code, _, stderr = plugin(info, "--profile", "p", "--socket", filepath.Join(t.TempDir(), "none.sock"))
	if code != exitUnreachable || !strings.Contains(stderr, "hint: run kubectl without sudo: the broker of uid 4711") {
		t.Errorf("with sudo: exit %d, %q", code, stderr)
	}
}

// The plugin does not connect to a socket that another user could have put there, and
// does not retry.
func TestUnsafe(t *testing.T) {
	b := answering(t, "", give)
	if err := os.Chmod(filepath.Dir(b.socket), 0o777); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := plugin(info, "--profile", "p", "--socket", b.socket)
	if code != exitUnreachable || stdout != "" || !strings.Contains(stderr, "can be written by other users") || len(b.asked) != 0 {
		t.Errorf("exit %d, %q, %q, %d calls", code, stdout, stderr, len(b.asked))
	}
}

// The plugin reports each thing that the broker waits for once, and extends its
// timeout.
func TestWaiting(t *testing.T) {
	b := answering(t, "", func(call *varlink.Call, _ int64) error {
		for _, what := range []string{"a touch", "a touch", "approval of csr-1"} {
			if err := call.Continue(brokerwire.GetCredentialReply{Waiting: what}); err != nil {
				return err
			}
		}
		return call.Reply(ticket())
	})
	code, stdout, stderr := plugin(info, "--profile", "p", "--socket", b.socket)
	if code != 0 || stderr != "holdfast: waiting: a touch\nholdfast: waiting: approval of csr-1\n" || !strings.Contains(stdout, "the-ticket") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}
