package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/door"
	"holdfast/internal/keys"
	"holdfast/internal/varlink"
)

func TestReplacedSocketIsMadeAnew(t *testing.T) {
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

// TestSocketClosesBeforeConnectionsDo: a client that loses an idle connection to an
// agent that stops finds no agent. If the socket were still open, the next connection
// would be closed unread too, which looks like a rejection.
func TestSocketClosesBeforeConnectionsDo(t *testing.T) {
	r := newRig(t)
	for round := range 20 {
		path := filepath.Join(r.dir, fmt.Sprintf("%d.sock", round))
		s, err := door.Listen(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		go r.agent.Serve(ctx, s)
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		idle := varlink.NewConn(conn)
		if err := idle.Call(t.Context(), agentwire.ListKeys, agentwire.ListKeysParameters{}, &agentwire.ListKeysReply{}); err != nil {
			t.Fatal(err)
		}
		stop()
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("the idle connection reads %v, want its end", err)
		}
		if late, err := net.Dial("unix", path); err == nil {
			late.Close()
			t.Fatalf("round %d: the connections were closed, and the socket took another one", round)
		}
		conn.Close()
	}
}
