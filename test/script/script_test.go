// Package script_test runs the real holdfast and holdfast-agent from scripts, one
// for each command, message and exit code. Start at testdata: each file is what a
// person would type, and what must come of it.
//
// A script has a directory of its own in $WORK, and starts what it needs of
// these, each of which ends with the script:
//
//	tpm [stop|cont|kill|restart|lock]   a software TPM; $TPM is its name for --device
//	card SERIAL [FIRMWARE|not-piv]      a PIV card in a reader, behind a pcscd of the script's; agents use it
//	card remove|insert SERIAL           take a card out and put it in again
//	card touch AFTER                    touch the cards so long after they ask for it; 0s is never
//	card pcscd-stop                     end pcscd
//	[!] agent [ARG...]                  an agent on $TPM at $HOLDFAST_SOCKET; with !, one that must not come up
//	agent-stop, agent-kill              SIGTERM (and exit status 0), SIGKILL
//	agent-reload                        SIGHUP, and wait until it is done
//	agent-log                           what the agent has written, as stdout
//	agent-open                          let other uids reach the socket
//	server [ARG...]                     openssl s_server that wants client certificates; $SERVER is its address
//	issue CSR CERTIFICATE               openssl signs a request with the script's CA, ca.pem
//	exits N [as UID] COMMAND...         run a command that must end with status N
//	as UID COMMAND...                   run a command as another uid
//	message NAME KIND                   sets $NAME to a message to be signed, base64
//	broker [stop] [ARG...]              a broker of that agent at $HOLDFAST_BROKER_SOCKET; its proxy is at $ENDPOINT
//	kubectl                             $KUBECTL is a stock kubectl
//	[!] call METHOD PARAMETERS          one varlink call by Python, as any program could make it
//	kube                                a stand-in for kube-apiserver at $APISERVER; kubeconfig, kube-ca.pem, bootstrap.token
//	kube decide WHAT [MESSAGE]          what becomes of certificate signing requests: issue, hold, approve, deny, fail
//	kube lifetime DURATION AGO          of certificates from now on, and how long ago they started
//	kube approve|revoke|stop|requests   issue what waits; take no client certificate; end; what was asked, as stdout
package script_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"holdfast/test/daemon"
)

func TestMain(m *testing.M) {
	code := m.Run()
	daemon.Remove()
	os.Exit(code)
}

// TestScripts runs every file of testdata.
func TestScripts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("the scripts act as a second uid: run as root")
	}
	bin := filepath.Dir(daemon.Program(t, daemon.AgentProgram))
	for _, program := range []string{daemon.Tool, daemon.BrokerProgram, daemon.PluginProgram} {
		daemon.Program(t, program)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(env *testscript.Env) error { return prepare(env, bin) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"tpm":          tpm,
			"card":         card,
			"agent":        agent,
			"agent-stop":   agentStop,
			"agent-kill":   agentKill,
			"agent-reload": agentReload,
			"agent-log":    agentLog,
			"agent-open":   agentOpen,
			"server":       server,
			"issue":        issue,
			"exits":        exits,
			"as":           as,
			"message":      setMessage,
			"call":         call,
			"kube":         kube,
			"broker":       broker,
			"kubectl":      findKubectl,
		},
	})
}

// prepare gives a script its environment: nothing of the test's own but the
// path.
func prepare(env *testscript.Env, bin string) error {
	// Other uids run commands in the script's directory.
	for dir := env.WorkDir; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "hf-") // socket paths have at most 107 bytes
	if err != nil {
		return err
	}
	env.Defer(func() { os.RemoveAll(dir) })
	env.Values[key] = &world{dir: dir}
	home := filepath.Join(env.WorkDir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	env.Setenv("PATH", bin+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	env.Setenv("HOME", home)
	env.Setenv("DIR", dir)
	env.Setenv("STATE", filepath.Join(dir, "state"))
	env.Setenv("RUN", filepath.Join(dir, "run"))
	env.Setenv("HOLDFAST_SOCKET", filepath.Join(dir, "run", "agent.sock"))
	env.Setenv("TPM", "none")
	return os.WriteFile(filepath.Join(env.WorkDir, "call.py"), []byte(callProgram), 0o644)
}
