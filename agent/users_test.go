package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
	"holdfast/internal/varlink"
)

// These tests call the agent as other users: the test binary runs itself under
// another uid, makes one call and prints what came back. They need root.

const childSocket = "AGENT_TEST_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(childSocket); socket != "" {
		if len(os.Args) == 1 {
			os.Exit(childPassesConnection(socket))
		}
		os.Exit(childCall(socket))
	}
	os.Exit(m.Run())
}

// answer is what a child prints.
type answer struct {
	Reply   json.RawMessage
	Error   string // the varlink error's name
	Message string
	Lost    bool // the connection was closed
}

func childCall(socket string) int {
	var a answer
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	err = varlink.NewConn(conn).Call(context.Background(), os.Args[1], json.RawMessage(os.Args[2]), &a.Reply)
	var v *varlink.Error
	switch {
	case errors.As(err, &v):
		var p fault.Parameters
		json.Unmarshal(v.Parameters, &p)
		a.Error, a.Message = v.Name, p.Message
	case err != nil:
		a.Lost, a.Message = true, err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		return 1
	}
	return 0
}

// childPassesConnection connects, hands the connection to its parent over file
// descriptor 3 and ends.
func childPassesConnection(socket string) int {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return 1
	}
	if err := varlink.NewConn(conn).Call(context.Background(), agentwire.ListKeys, agentwire.Empty{}, &agentwire.ListKeysReply{}); err != nil {
		return 1 // from here on the agent has identified the caller
	}
	f, err := conn.File()
	if err == nil {
		err = syscall.Sendmsg(3, []byte{0}, syscall.UnixRights(int(f.Fd())), nil, 0)
	}
	if err != nil {
		return 1
	}
	syscall.Read(3, make([]byte, 1)) // until the parent closes its end
	return 0
}

// orphan returns a connection whose process has ended.
func (r *rig) orphan() *varlink.Conn {
	r.t.Helper()
	conn, end := r.handedOver()
	end()
	return conn
}

// handedOver returns a connection of another process, and what ends that process.
func (r *rig) handedOver() (conn *varlink.Conn, end func()) {
	r.t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "pair")
	defer theirs.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{childSocket + "=" + r.socket, "GORACE=atexit_sleep_ms=0"}
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	theirs.Close()
	end = func() {
		syscall.Close(pair[0])
		if err := cmd.Wait(); err != nil {
			r.t.Error(err)
		}
	}
	rights := make([]byte, 64)
	_, n, _, _, err := syscall.Recvmsg(pair[0], make([]byte, 1), rights, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		r.t.Fatal(messages, err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		r.t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "connection")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return varlink.NewConn(c), end
}

// A process that ends while the device signs for it takes the answer with it, even
// when another process still holds its connection.
func TestAnswerForAnEndedProcessStaysHere(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	conn, end := r.handedOver()
	release := r.memory.Block()
	in := agentwire.SignTLSClientParameters{Key: "alice", Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client")}
	var reply agentwire.SignReply
	result := make(chan error, 1)
	go func() { result <- asKeysError(conn.Call(t.Context(), agentwire.SignTLSClient, in, &reply)) }()
	r.memory.WaitBlocked()
	end()
	release()
	wantKind(t, <-result, fault.Denied)
	if reply.Signature != nil {
		t.Error("the signature left")
	}
}

func TestConnectionOfAnEndedProcessGetsNothing(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	before := r.memory.Signs()
	in := agentwire.SignTLSClientParameters{Key: "alice", Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client")}
	var reply agentwire.SignReply
	err := r.orphan().Call(t.Context(), agentwire.SignTLSClient, in, &reply)
	if err == nil || reply.Signature != nil {
		t.Errorf("got %v and %d bytes, want an error", err, len(reply.Signature))
	}
	if n := r.memory.Signs() - before; n != 0 {
		t.Errorf("the device signed %d times", n)
	}
}

// as makes a call as uid, whose group has the same number.
func (r *rig) as(uid uint32, socket, method string, in any) answer {
	r.t.Helper()
	parameters, err := json.Marshal(in)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(r.binary, method, string(parameters))
	cmd.Env = []string{childSocket + "=" + socket, "GORACE=atexit_sleep_ms=0"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("as uid %d (these tests need root): %v %s", uid, err, out)
	}
	var a answer
	if err := json.Unmarshal(out, &a); err != nil {
		r.t.Fatal(err)
	}
	return a
}

// open makes the rig's directory one that every uid can reach, with a copy of
// the test binary in it.
func open(r *rig) {
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		r.binary = filepath.Join(dir, "test")
		err = os.WriteFile(r.binary, self, 0o755)
	}
	if err := errors.Join(err, os.Chmod(dir, 0o755)); err != nil {
		r.t.Fatal(err)
	}
	r.dir = dir
}

func system(r *rig) {
	open(r)
	r.options.System = true
	r.policy = func() (*policy.Policy, error) { return policy.SystemDefault(), nil }
}

const alice, bob = 41001, 41002

func keyNames(t *testing.T, a answer) string {
	t.Helper()
	var reply agentwire.ListKeysReply
	if err := json.Unmarshal(a.Reply, &reply); err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
	var names []string
	for _, k := range reply.Keys {
		names = append(names, fmt.Sprintf("%d/%s", k.Owner.UID, k.Name))
	}
	return strings.Join(names, " ")
}

func TestAnotherUserIsClosedUnread(t *testing.T) {
	r := newRig(t, open)
	r.create("alice", keys.TLSClient)
	a := r.as(alice, r.socket, agentwire.ListKeys, agentwire.Empty{})
	if !a.Lost {
		t.Errorf("another uid got %+v, want a closed connection", a)
	}
	last := r.auditLines()[len(r.auditLines())-1]
	for _, want := range []string{`"connect"`, `"deny"`, fmt.Sprintf(`"uid":%d`, alice)} {
		if !strings.Contains(last, want) {
			t.Errorf("the audit log lacks %s: %s", want, last)
		}
	}
}

func TestUsersSeeAndUseTheirOwnKeysOnly(t *testing.T) {
	r := newRig(t, system)
	create := func(uid uint32) {
		t.Helper()
		if a := r.as(uid, r.socket, agentwire.CreateKey, agentwire.CreateKeyParameters{Name: "work", Purpose: "tls-client"}); a.Error != "" || a.Lost {
			t.Fatalf("uid %d: %+v", uid, a)
		}
	}
	create(alice)
	if got := keyNames(t, r.as(bob, r.socket, agentwire.ListKeys, agentwire.ListKeysParameters{All: true})); got != "" {
		t.Errorf("bob sees %q, want nothing", got)
	}
	for method, in := range map[string]any{
		agentwire.GetKey: agentwire.NameParameters{Name: "work"}, agentwire.ExportKey: agentwire.NameParameters{Name: "work"}, agentwire.DeleteKey: agentwire.NameParameters{Name: "work"},
		agentwire.SignTLSClient: agentwire.SignTLSClientParameters{Key: "work", Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client")},
	} {
		if a := r.as(bob, r.socket, method, in); a.Error != agentwire.Errors().ErrorName(fault.Denied) {
			t.Errorf("%s as bob: %+v, want Denied", method, a)
		}
	}
	create(bob) // the same name is another key
	if got, want := keyNames(t, r.as(bob, r.socket, agentwire.ListKeys, agentwire.Empty{})), fmt.Sprintf("%d/work", bob); got != want {
		t.Errorf("bob sees %q, want %q", got, want)
	}
	in := agentwire.SignTLSClientParameters{Key: "work", Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client")}
	if a := r.as(alice, r.socket, agentwire.SignTLSClient, in); a.Error != "" || a.Lost {
		t.Errorf("alice with her own key: %+v", a)
	}
}

func TestAuditShowsUsersTheirOwnRecordsOnly(t *testing.T) {
	r := newRig(t, system)
	r.as(alice, r.socket, agentwire.CreateKey, agentwire.CreateKeyParameters{Name: "mine", Purpose: "tls-client"})
	a := r.as(bob, r.socket, agentwire.TailAudit, agentwire.Empty{})
	if a.Error != "" || strings.Contains(string(a.Reply), "mine") {
		t.Errorf("bob sees %s %s", a.Reply, a.Error)
	}
	if a := r.as(bob, r.socket, agentwire.VerifyAudit, agentwire.Empty{}); a.Error != agentwire.Errors().ErrorName(fault.Denied) {
		t.Errorf("bob verified the whole log: %+v", a)
	}
	a = r.as(alice, r.socket, agentwire.TailAudit, agentwire.Empty{})
	if !strings.Contains(string(a.Reply), "mine") {
		t.Errorf("alice sees %s %s", a.Reply, a.Error)
	}
}

func TestMachineKeysNeedARule(t *testing.T) {
	r := newRig(t, system)
	admin := r.listenAdmin()
	made := r.as(0, admin, agentwire.CreateKey, agentwire.CreateKeyParameters{Name: "node", Purpose: "tls-client"})
	if made.Error != "" || made.Lost {
		t.Fatalf("root over the admin socket: %+v", made)
	}
	in := agentwire.SignTLSClientParameters{Key: "node", Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client")}
	if a := r.as(alice, r.socket, agentwire.SignTLSClient, in); a.Error != agentwire.Errors().ErrorName(fault.Denied) {
		t.Errorf("without a rule: %+v, want Denied", a)
	}
	rules := fmt.Sprintf("version: 1\nrules:\n- name: node\n  allow: [sign-tls-client]\n  uids: [%d]\n  keys: [node]\n  owner: machine\n", alice)
	r.policy = func() (*policy.Policy, error) { return policy.Parse("policy.yaml", []byte(rules)) }
	if err := r.agent.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	if a := r.as(alice, r.socket, agentwire.SignTLSClient, in); a.Error != "" || a.Lost {
		t.Errorf("with a rule: %+v", a)
	}
	if a := r.as(alice, r.socket, agentwire.DeleteKey, agentwire.NameParameters{Name: "node"}); a.Error != agentwire.Errors().ErrorName(fault.Denied) {
		t.Errorf("a rule for one operation let another through: %+v", a)
	}
	if a := r.as(bob, r.socket, agentwire.ListKeys, agentwire.Empty{}); !a.Lost {
		t.Errorf("bob, whom no rule names: %+v, want a closed connection", a)
	}
}

// The answers for a key of the machine that no rule lets the user use are those for a
// key that does not exist.
func TestForbiddenKeysCannotBeProbed(t *testing.T) {
	r := newRig(t, system)
	if a := r.as(0, r.listenAdmin(), agentwire.CreateKey, agentwire.CreateKeyParameters{Name: "machine-1", Purpose: "tls-client"}); a.Error != "" || a.Lost {
		t.Fatalf("%+v", a)
	}
	asked := func(key string) string {
		all := ""
		for _, question := range []struct {
			method string
			in     any
		}{
			{agentwire.GetKey, agentwire.NameParameters{Name: key}},
			{agentwire.TailAudit, agentwire.TailAuditParameters{Records: 1}},
			{agentwire.CheckPolicy, agentwire.CheckPolicyParameters{UID: alice, GIDs: []uint32{}, Key: key, Operation: "sign-tls-client"}},
		} {
			a := r.as(alice, r.socket, question.method, question.in)
			all += fmt.Sprintln(question.method, string(a.Reply), a.Error, a.Message)
		}
		changing := regexp.MustCompile(`\\"(time|seq|request|pid|start|prev)\\":(\\"[^"]*\\"|[0-9]+)`)
		return changing.ReplaceAllString(strings.ReplaceAll(all, key, "KEY"), "")
	}
	forbidden, missing := asked("machine-1"), asked("machine-2")
	if forbidden != missing {
		t.Errorf("of a forbidden key:\n%s\nof a missing key:\n%s", forbidden, missing)
	}
	other := agentwire.CheckPolicyParameters{UID: alice, GIDs: []uint32{0}, Key: "machine-1", Operation: "sign-tls-client"}
	if a := r.as(alice, r.socket, agentwire.CheckPolicy, other); a.Error != agentwire.Errors().ErrorName(fault.Denied) {
		t.Errorf("alice asked as a member of another group: %+v", a)
	}
}

func TestDeniedRequestsDoNotFillTheLog(t *testing.T) {
	r := newRig(t)
	before, conn := len(r.auditLines()), r.dial()
	for range 300 {
		in := agentwire.NameParameters{Name: "nosuch"}
		wantKind(t, asKeysError(conn.Call(t.Context(), agentwire.GetKey, in, &agentwire.KeyReply{})), fault.Denied)
	}
	if got := len(r.auditLines()) - before; got != 200 {
		t.Errorf("300 denied requests left %d records, want 200", got)
	}
}

func TestRefusalsDoNotFillTheLog(t *testing.T) {
	r := newRig(t, open)
	before := len(r.auditLines())
	for range 40 {
		if a := r.as(alice, r.socket, agentwire.ListKeys, agentwire.Empty{}); !a.Lost {
			t.Fatalf("%+v", a)
		}
	}
	if got := len(r.auditLines()) - before; got != 20 {
		t.Errorf("40 refused connections left %d records, want 20", got)
	}
}
