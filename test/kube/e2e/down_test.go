package e2e

import (
	"strings"
	"testing"

	"holdfast/client/profile"
	"holdfast/test/daemon"
)

// Without a broker, a command of kubectl runs the plugin once, which says so in one
// line. The next command works when the broker is back.
func TestBrokerDown(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice)
	for _, command := range []string{"get pods", "auth whoami", "logs x"} {
		config := r.config(t, profile.ModeProxy)
		runs := countRuns(t, config.AuthInfos["test"].Exec)
		kubeconfig := r.write(t, config)
		r.broker.Kill()
		o := run(r.kubectl(kubeconfig, strings.Fields(command)...))
		if got, lines := runs(), strings.Count(o.stderr, "holdfast: "); got != 1 || lines != 1 || o.code == 0 || !strings.Contains(o.stderr, "no broker listens") {
			t.Errorf("kubectl %s: %d runs of the plugin and %d lines of it, exit %d, want one:\n%s", command, got, lines, o.code, o.stderr)
		}
		r.broker = daemon.StartBroker(t, daemon.BrokerOptions{Dir: r.broker.Dir, Agent: r.agent})
		if o := run(r.kubectl(kubeconfig, "get", "pods")); o.code != 0 {
			t.Errorf("with a broker again: %s", o.stderr)
		}
	}
}
