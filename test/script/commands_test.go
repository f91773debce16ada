package script_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"

	"holdfast/test/apiserver"
	"holdfast/test/daemon"
	"holdfast/test/pivcard"
	"holdfast/test/swtpm"
)

// world is what a script has started.
type world struct {
	dir    string
	tpm    *swtpm.TPM
	agent  *daemon.Agent
	broker *daemon.Broker
	kube   *apiserver.Server
	rig    *pivcard.Rig
	cards  map[string]*pivcard.Card // by serial number
	ca     bool
}

type worldKey struct{}

var key worldKey

func worldOf(ts *testscript.TestScript) *world { return ts.Value(key).(*world) }

// scriptTB lets the helpers of Go tests serve a script.
type scriptTB struct{ ts *testscript.TestScript }

func (scriptTB) Helper()                             {}
func (s scriptTB) Fatalf(format string, args ...any) { s.ts.Fatalf(format, args...) }
func (s scriptTB) Cleanup(f func())                  { s.ts.Defer(f) }

// refuseNot ends the script where a command was written with a ! that means
// nothing.
func refuseNot(ts *testscript.TestScript, neg bool) {
	if neg {
		ts.Fatalf("this command has no negation")
	}
}

func tpm(ts *testscript.TestScript, neg bool, args []string) {
	refuseNot(ts, neg)
	w := worldOf(ts)
	switch strings.Join(args, " ") {
	case "":
		w.tpm = swtpm.Start(scriptTB{ts})
		ts.Setenv("TPM", w.tpm.Device())
		for _, name := range []string{"TPM2TOOLS_TCTI", "TPM2OPENSSL_TCTI"} {
			ts.Setenv(name, "swtpm:path="+w.tpm.Path)
		}
	case "stop":
		w.tpm.Stop()
	case "cont":
		w.tpm.Cont()
	case "kill":
		w.tpm.Kill()
	case "restart":
		w.tpm.Restart()
	case "clear":
		w.tpm.Clear()
	default:
		ts.Fatalf("tpm %v: no such command", args)
	}
}

// agent starts an agent with the arguments added to the usual ones. With a !
// the agent must end by itself: its output is then stderr.
func agent(ts *testscript.TestScript, neg bool, args []string) {
	w := worldOf(ts)
	o := daemon.Options{Dir: w.dir, Device: ts.Getenv("TPM"), Args: args, Env: scriptEnvironment(ts), Cards: cardsOf(w)}
	if neg {
		a := daemon.Launch(scriptTB{ts}, o)
		status := a.Exit()
		ts.Stderr().Write([]byte(a.Log()))
		ts.Setenv("status", strconv.Itoa(status))
		if status == 0 {
			ts.Fatalf("the agent ended with status 0:\n%s", a.Log())
		}
		return
	}
	w.agent = daemon.Start(scriptTB{ts}, o)
	ts.Setenv("AGENT_PID", strconv.Itoa(w.agent.Pid()))
}

// scriptEnvironment is the variables that a script may have set for the agent.
func scriptEnvironment(ts *testscript.TestScript) []string {
	env := []string{"HOME=" + ts.Getenv("HOME")}
	for _, name := range strings.Fields(ts.Getenv("AGENT_ENV")) {
		env = append(env, name+"="+ts.Getenv(name))
	}
	return env
}

func agentStop(ts *testscript.TestScript, neg bool, _ []string) {
	refuseNot(ts, neg)
	if status := worldOf(ts).agent.Stop(); status != 0 {
		ts.Fatalf("the agent ended with status %d:\n%s", status, worldOf(ts).agent.Log())
	}
}

func agentKill(ts *testscript.TestScript, neg bool, _ []string) {
	refuseNot(ts, neg)
	worldOf(ts).agent.Kill()
}

func agentReload(ts *testscript.TestScript, neg bool, _ []string) {
	refuseNot(ts, neg)
	a := worldOf(ts).agent
	before := strings.Count(a.Log(), "reload")
	a.Signal(syscall.SIGHUP)
	a.WaitLog("reload", before+1)
}

func agentLog(ts *testscript.TestScript, neg bool, _ []string) {
	refuseNot(ts, neg)
	ts.Stdout().Write([]byte(worldOf(ts).agent.Log()))
}

func agentOpen(ts *testscript.TestScript, neg bool, _ []string) {
	refuseNot(ts, neg)
	worldOf(ts).agent.Open()
}

// exits runs a command whose exit status is part of what is promised.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	refuseNot(ts, neg)
	if len(args) < 2 {
		ts.Fatalf("exits N [as UID] COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	args = args[1:]
	if args[0] == "as" {
		args = other(ts, args[1:])
	}
	err = ts.Exec(args[0], args[1:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("%s ended with status %d, want %d", args[0], got, want)
	}
}

func as(ts *testscript.TestScript, neg bool, args []string) {
	args = other(ts, args)
	if err := ts.Exec(args[0], args[1:]...); (err != nil) != neg {
		ts.Fatalf("%v: %v", args, err)
	}
}

// other turns UID COMMAND... into a command that runs as that uid.
func other(ts *testscript.TestScript, args []string) []string {
	if len(args) < 2 {
		ts.Fatalf("as UID COMMAND...")
	}
	return append([]string{"setpriv", "--reuid=" + args[0], "--regid=" + args[0], "--clear-groups"}, args[1:]...)
}

// callProgram is a varlink client of a few lines, in a language that is not
// ours, which sends what it is told to.
const callProgram = `import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as agent:
    agent.settimeout(20)
    agent.connect(os.environ["HOLDFAST_SOCKET"])
    agent.sendall(json.dumps({"method": sys.argv[1], "parameters": json.loads(sys.argv[2])}).encode() + b"\0")
    reply = b""
    while not reply.endswith(b"\0"):
        part = agent.recv(65536)
        if not part:
            sys.exit("closed without an answer")
        reply += part
reply = json.loads(reply[:-1])
print(json.dumps(reply))
sys.exit(1 if "error" in reply else 0)
`

func call(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("call METHOD PARAMETERS")
	}
	method := args[0]
	if !strings.Contains(method, ".") {
		method = "io.holdfast.Agent." + method
	}
	err := ts.Exec("/usr/bin/python3", ts.MkAbs("call.py"), method, args[1])
	if (err != nil) != neg {
		ts.Fatalf("%s: %v", method, err)
	}
}

// setMessage builds messages by hand, so that the agent's parsers are judged by
// something else than themselves.
func setMessage(ts *testscript.TestScript, neg bool, args []string) {
	refuseNot(ts, neg)
	if len(args) != 2 {
		ts.Fatalf("message NAME KIND")
	}
	sum := sha256.Sum256([]byte("a transcript"))
	spaces := bytes.Repeat([]byte(" "), 64)
	tls13 := func(spaces []byte, side string, hash []byte) []byte {
		return bytes.Join([][]byte{spaces, []byte("TLS 1.3, " + side + " CertificateVerify\x00"), hash}, nil)
	}
	messages := map[string][]byte{
		"client":    tls13(spaces, "client", sum[:]),
		"client384": tls13(spaces, "client", append(sum[:], sum[:16]...)),
		"server":    tls13(spaces, "server", sum[:]),
		"spaces63":  tls13(spaces[1:], "client", sum[:]),
		"short":     tls13(spaces, "client", sum[:31]),
		"long":      tls13(spaces, "client", append(sum[:], 0)),
		"twice":     bytes.Repeat(tls13(spaces, "client", sum[:]), 2),
		"server12":  bytes.Join([][]byte{sum[:], sum[:], {3, 0, 29, 32}, sum[:]}, nil), // X25519
		"digest":    sum[:],
		"digest20":  sum[:20],
		"jwt":       []byte("eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJodHRwczovL2V4YW1wbGUuY29tIn0"),
		"empty":     {},
	}
	msg, ok := messages[args[1]]
	if !ok {
		ts.Fatalf("there is no message %s", args[1])
	}
	ts.Setenv(args[0], base64.StdEncoding.EncodeToString(msg))
}

// caExtensions is what openssl puts into the certificates of a script's CA.
const caExtensions = "subjectAltName = DNS:localhost, IP:127.0.0.1\nextendedKeyUsage = clientAuth, serverAuth\n"

// openssl runs openssl in the script's directory.
func openssl(ts *testscript.TestScript, args ...string) {
	if err := ts.Exec("openssl", args...); err != nil {
		ts.Fatalf("openssl %s: %v", args[0], err)
	}
}

// makeCA makes ca.pem and, issued by it, server.pem for localhost.
func makeCA(ts *testscript.TestScript) {
	w := worldOf(ts)
	if w.ca {
		return
	}
	w.ca = true
	ts.Check(os.WriteFile(ts.MkAbs("leaf.ext"), []byte(caExtensions), 0o644))
	curve := []string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"}
	openssl(ts, append([]string{"req", "-x509", "-days", "1", "-subj", "/CN=script CA", "-keyout", "ca.key", "-out", "ca.pem"}, curve...)...)
	openssl(ts, append([]string{"req", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"}, curve...)...)
	sign(ts, "server.csr", "server.pem")
}

func sign(ts *testscript.TestScript, csr, certificate string) {
	openssl(ts, "x509", "-req", "-in", csr, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1",
		"-extfile", "leaf.ext", "-out", certificate)
}

// issue checks a request's signature and issues a certificate for it.
func issue(ts *testscript.TestScript, neg bool, args []string) {
	refuseNot(ts, neg)
	if len(args) != 2 {
		ts.Fatalf("issue CSR CERTIFICATE")
	}
	makeCA(ts)
	openssl(ts, "req", "-in", args[0], "-verify", "-noout")
	sign(ts, args[0], args[1])
}

// server starts an openssl s_server that rejects clients without a
// certificate of the script's CA and answers HTTP with what it saw of them.
func server(ts *testscript.TestScript, neg bool, args []string) {
	refuseNot(ts, neg)
	makeCA(ts)
	cmd := exec.Command("openssl", append([]string{
		"s_server", "-accept", "127.0.0.1:0", "-www", "-CAfile", "ca.pem", "-cert", "server.pem", "-key", "server.key",
		"-Verify", "1", "-verify_return_error",
	}, args...)...)
	cmd.Dir = ts.MkAbs(".")
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address, err := accepting(out)
	ts.Check(err)
	ts.Setenv("SERVER", address)
}
