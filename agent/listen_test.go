package agent_test

import (
	"net"
	"os"
	"strings"
	"testing"

	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

func TestReplacedSocketIsMadeAgain(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient) // the agent serves
	if replaced, err := r.use.Check(); replaced || err != nil {
		t.Errorf("Check of an untouched socket: %v, %v", replaced, err)
	}
	if err := os.Remove(r.socket); err != nil {
		t.Fatal(err)
	}
	squatter, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer squatter.Close()
	r.agent.CheckSockets()
	if last := r.auditLines()[len(r.auditLines())-1]; !strings.Contains(last, `"socket-replaced"`) || !strings.Contains(last, r.socket) {
		t.Errorf("the last record is %s", last)
	}
	if err := r.call(agentwire.ListKeys, agentwire.Empty{}, &agentwire.ListKeysReply{}); err != nil {
		t.Errorf("after Check: %v", err)
	}
}
