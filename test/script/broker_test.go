package script_test

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"holdfast/test/daemon"
	"holdfast/test/kubectl"
)

// broker starts a broker with the arguments added to the usual ones; its profiles
// are those of the script's user. With stop, it ends the one that runs.
func broker(ts *testscript.TestScript, neg bool, args []string) {
	refuseNot(ts, neg)
	w := worldOf(ts)
	if strings.Join(args, " ") == "stop" {
		if status := w.broker.Stop(); status != 0 {
			ts.Fatalf("the broker ended with status %d:\n%s", status, w.broker.Log())
		}
		return
	}
	profiles := filepath.Join(ts.Getenv("HOME"), ".config", "holdfast", "profiles")
	dir := filepath.Join(w.dir, "b") // agent and broker each lock their state
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		ts.Fatalf("%v", err)
	}
	w.broker = daemon.StartBroker(scriptTB{ts}, daemon.BrokerOptions{
		Agent: w.agent, Dir: dir, Args: append([]string{"--profiles", profiles}, args...), Env: scriptEnvironment(ts),
	})
	ts.Setenv("HOLDFAST_BROKER_SOCKET", w.broker.Socket)
	ts.Setenv("ENDPOINT", w.broker.GetStatus().Endpoint.Address)
}

// findKubectl sets $KUBECTL to a stock kubectl. Its cache is in the script's home.
func findKubectl(ts *testscript.TestScript, neg bool, _ []string) {
	refuseNot(ts, neg)
	ts.Setenv("KUBECTL", kubectl.Path(scriptTB{ts}))
}
