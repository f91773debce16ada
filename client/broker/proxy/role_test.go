package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/peer"
	"holdfast/test/role"
)

func TestMain(m *testing.M) { role.Main(m, play) }

// play is what a process in a role does: processes with parents, users and
// connections of their own.
func play(name string, arguments []string) error {
	switch name {
	case "plugin":
		return playPlugin(arguments[0])
	case "kubectl":
		return playKubectl()
	case "broker":
		return playBroker()
	}
	return errors.New("no such role")
}

// playPlugin asks for a ticket and prints it.
func playPlugin(socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// An errand is what a kubectl in a role is to do.
type errand struct {
	UID     int
	Socket  string // of the plugin it runs; empty for none
	Profile string
	Token   string // used when it runs none
	Address string
	CA      []byte
}

// A verdict is what became of it.
type verdict struct {
	Code int
	Body string
	Err  string
}

// playKubectl runs the plugin as kubectl does, and sends one request.
func playKubectl() error {
	var e errand
	if err := json.NewDecoder(os.Stdin).Decode(&e); err != nil {
		return err
	}
	if e.UID != 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(e.UID), syscall.Setuid(e.UID)); err != nil {
			return err
		}
	}
	if e.Socket != "" {
		cmd := exec.Command("/proc/self/exe", e.Socket)
		cmd.Env = role.Environ("plugin")
		text, err := cmd.Output()
		if err != nil {
			return err
		}
		e.Token = string(text)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.CA)
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: e.Profile + ".holdfast.internal"},
		ForceAttemptHTTP2: true,
	}}
	r, err := http.NewRequest("GET", "https://"+e.Address+"/api", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+e.Token)
	var v verdict
	if answer, err := client.Do(r); err != nil {
		v.Err = err.Error()
	} else {
		body, _ := io.ReadAll(answer.Body)
		v = verdict{Code: answer.StatusCode, Body: string(body)}
	}
	return json.NewEncoder(os.Stdout).Encode(v)
}

// start starts a process in a role.
func start(t testing.TB, name string, arguments ...string) *role.Process {
	t.Helper()
	return role.Start(t, role.Options{Role: name}, arguments...)
}

// issueTo answers one plugin with a ticket for its parent.
func issueTo(l *net.UnixListener, issue func(*peer.Peer) (string, error)) error {
	l.SetDeadline(time.Now().Add(20 * time.Second))
	conn, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	defer conn.Close()
	p, err := new(peer.Identifier).FromConn(conn)
	if err != nil {
		return err
	}
	defer p.Close()
	token, err := issue(p)
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte(token))
	return err
}

// run sends a kubectl on an errand.
func (e errand) run(t *testing.T) verdict {
	t.Helper()
	kubectl := start(t, "kubectl")
	if err := json.NewEncoder(kubectl.In).Encode(e); err != nil {
		t.Fatal(err)
	}
	line := kubectl.Line()
	var v verdict
	if err := json.NewDecoder(strings.NewReader(line)).Decode(&v); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return v
}
