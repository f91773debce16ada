package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
)

func TestStatus(t *testing.T) {
	agent := clienttest.Start(t)
	until, tries := time.Now().Add(time.Hour), 2
	agent.Status.Caller = agentwire.Caller{UID: 1000, User: "alice", PID: 4711, Unit: "x.service"}
	agent.Status.Notices = []agentwire.Notice{{Message: "a record is set aside", Hint: "mend it"}}
	agent.Status.Devices[0] = agentwire.Device{
		Backend: "tpm", Device: "swtpm:/x", State: "locked", Software: true, Reason: "too many wrong PINs", Hint: "wait",
		LockedUntil: &until, TriesLeft: &tries, Maker: "IBM 1.2",
		Can: []agentwire.Capability{{Algorithm: "ES256"}, {Algorithm: "RS256", RSABits: 2048}},
	}
	c := command{socket: agent.Socket}
	c.run("status").want(t, 0, "user mode", agent.Socket, "alice (uid 1000), process 4711, unit x.service", "built-in", "/dev/null",
		"swtpm:/x (SOFTWARE TPM: no hardware protects its keys)", "locked since", "until", "too many wrong PINs", "hint: wait",
		"made by IBM 1.2", "makes ES256, RS256-2048", "2 wrong PINs", "a record is set aside", "hint: mend it")
	var status agentwire.GetStatusReply
	check(t, json.Unmarshal([]byte(c.run("status", "--json").stdout), &status))
	if status.Caller.User != "alice" || !status.Devices[0].Software {
		t.Errorf("--json: got %+v", status)
	}
	tries = 1
	c.run("status").want(t, 0, "1 wrong PIN until it locks")
	agent.Status.Devices = []agentwire.Device{{Backend: "piv", Device: "card:7", State: "ready", Maker: "PIV 5.4.3", TriesLeft: &tries}, {Backend: "piv", Device: "piv", State: "absent"}}
	c.run("status").want(t, 0, "device  card:7\n", "        PIV 5.4.3\n", "        PIN: 1 try left\n        hint: holdfast piv unblock", "device  cards\n")
	agent.Status.Devices = nil
	c.run("status").want(t, 0, "device  none")
}

// An agent that takes connections and answers nothing is given up soon.
func TestStuckAgent(t *testing.T) {
	socket := t.TempDir() + "/agent.sock"
	listener, err := net.Listen("unix", socket)
	check(t, err)
	t.Cleanup(func() { listener.Close() })
	for _, name := range []string{"status", "doctor"} {
		var out synced
		a := &app{streams: streams{strings.NewReader(""), &out, &out, nil}, timeouts: timeouts{state: 50 * time.Millisecond}}
		root := a.commands()
		root.SetArgs([]string{"--socket", socket, name})
		if code := a.report(root.ExecuteContext(t.Context())); code != exitUnreachable || !strings.Contains(out.String(), "gave no answer within 50ms") {
			t.Errorf("%s: got %d and %q", name, code, out.String())
		}
	}
	if got := usualTimeouts().state; got != 5*time.Second {
		t.Errorf("people wait %s", got)
	}
}

// With --wait the command may be typed before the agent listens, and ends when none comes.
func TestStatusWaits(t *testing.T) {
	dir := t.TempDir()
	check(t, os.Chmod(dir, 0o700))
	socket := filepath.Join(dir, "agent.sock")
	ended := make(chan result, 1)
	go func() { ended <- command{socket: socket}.run("status", "--wait", "30s") }()
	agent := clienttest.Start(t)
	check(t, os.Symlink(agent.Socket, socket))
	(<-ended).want(t, 0, "user mode")
	command{socket: filepath.Join(dir, "none.sock")}.run("status", "--wait", "1ms").want(t, exitUnreachable, "no agent listens")
}
