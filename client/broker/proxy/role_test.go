package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/internal/peer"
)

// roleVariable makes the test binary play a part in a test instead of running
// tests: processes with parents, users and connections of their own.
const roleVariable = "HOLDFAST_PROXY_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, role, "failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if path, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

func play(role string) error {
	switch role {
	case "plugin":
		return playPlugin(os.Args[1])
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
		cmd.Env = []string{roleVariable + "=plugin"}
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

// program is a copy of the test binary that every user may run.
var program = sync.OnceValues(func() (string, error) {
	directory, err := os.MkdirTemp("", "holdfast-proxy-test")
	if err != nil {
		return "", err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	path := filepath.Join(directory, "role")
	return path, errors.Join(os.Chmod(directory, 0o755), os.WriteFile(path, self, 0o755), os.Chmod(path, 0o755))
})

// start starts a process in a role, with its input and its output.
func start(t testing.TB, role string, arguments ...string) (*exec.Cmd, io.WriteCloser, *bufio.Reader) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, arguments...)
	cmd.Env = []string{roleVariable + "=" + role, "GORACE=atexit_sleep_ms=0"}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, in, bufio.NewReader(out)
}

// unixSocket makes a socket that every user may connect to.
func unixSocket(t testing.TB) (*net.UnixListener, string) {
	t.Helper()
	directory, err := os.MkdirTemp("", "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	path := filepath.Join(directory, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := errors.Join(os.Chmod(directory, 0o755), os.Chmod(path, 0o777)); err != nil {
		t.Fatal(err)
	}
	return l, path
}

// issueTo answers one plugin with a ticket for its parent.
func issueTo(l *net.UnixListener, issue func(*peer.Peer) (string, error)) error {
	l.SetDeadline(time.Now().Add(20 * time.Second))
	conn, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	defer conn.Close()
	p, err := peer.FromConn(conn)
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
	_, in, out := start(t, "kubectl")
	if err := json.NewEncoder(in).Encode(e); err != nil {
		t.Fatal(err)
	}
	line, err := out.ReadString('\n')
	var v verdict
	if err := errors.Join(err, json.NewDecoder(strings.NewReader(line)).Decode(&v)); err != nil {
		t.Fatal(err)
	}
	return v
}
