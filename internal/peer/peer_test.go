package peer

import (
	"errors"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"holdfast/internal/proc"
	"holdfast/test/role"

	"golang.org/x/sys/unix"
)

func TestFromConnFindsThisProcess(t *testing.T) {
	l, path := role.Listen(t)
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	p := identify(t, l)

	if got, want := p.UID, uint32(os.Geteuid()); got != want {
		t.Errorf("uid: got %d, want %d", got, want)
	}
	if got, want := p.GID, uint32(os.Getegid()); got != want {
		t.Errorf("gid: got %d, want %d", got, want)
	}
	if got, want := p.PID, int32(os.Getpid()); got != want {
		t.Errorf("pid: got %d, want %d", got, want)
	}
	self, err := proc.ReadStat(int32(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.StartTime, self.Start; got != want || got == 0 {
		t.Errorf("start time: got %d, want %d", got, want)
	}
	if p.UnitRacy {
		t.Error("the unit is racy, on a kernel that has SO_PEERPIDFD")
	}
	if err := p.Alive(); err != nil {
		t.Errorf("alive: got %v", err)
	}
}

func TestFromConnReadsNothing(t *testing.T) {
	l, path := role.Listen(t)
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	conn := role.Accept(t, l)
	p, err := new(Identifier).FromConn(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	got := make([]byte, 6)
	n, err := conn.Read(got)
	if err != nil || string(got[:n]) != "hello" {
		t.Errorf("got %q, %v, want all that the client sent", got[:n], err)
	}
}

func TestOtherUser(t *testing.T) {
	role.NeedRoot(t)
	l, path := role.Listen(t)
	client := start(t, nil, "setgroups=2001,27,65534,27,1234", "setgid=1234", "setuid=4321", "connect="+path, "say=ready", "wait")
	client.Expect("ready")
	p := identify(t, l)
	got := p.Identity
	got.StartTime, got.Unit = 0, ""
	want := Identity{UID: 4321, GID: 1234, Groups: []uint32{27, 1234, 2001}, PID: client.Pid()}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestManyGroups(t *testing.T) {
	role.NeedRoot(t)
	l, path := role.Listen(t)
	list, want := "7", []uint32{7}
	for g := uint32(300000); g < 301000; g++ {
		list += "," + strconv.Itoa(int(g))
		want = append(want, g)
	}
	client := start(t, nil, "setgroups="+list, "connect="+path, "say=ready", "wait")
	client.Expect("ready")
	if got := identify(t, l).Groups; !slices.Equal(got, want) {
		t.Errorf("got %d groups, want %d", len(got), len(want))
	}
}

// Kernels keep groups sorted by their own numbers, which a user namespace can
// put in another order.
func TestNormalise(t *testing.T) {
	cases := []struct{ groups, want []uint32 }{
		{[]uint32{}, []uint32{}},
		{[]uint32{3, 1, 2, 1, 3}, []uint32{1, 2, 3}},
		{[]uint32{65534, 0, 65534}, []uint32{0}},
	}
	for _, c := range cases {
		if got := normalise(slices.Clone(c.groups)); !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.groups, got, c.want)
		}
	}
}

func TestUserHasAName(t *testing.T) {
	role.NeedRoot(t)
	l, path := role.Listen(t)
	client := start(t, nil, "setuid=33", "connect="+path, "say=ready", "wait")
	client.Expect("ready")
	if got, want := identify(t, l).User, "www-data"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The kernel's word is about the moment of connect(2): neither more nor fewer
// rights later count.
func TestConnectThenChangeUser(t *testing.T) {
	role.NeedRoot(t)
	l, path := role.Listen(t)
	client := start(t, nil, "setgroups=5", "connect="+path, "setgroups=6", "setgid=1000", "setuid=1000", "say=ready", "wait")
	client.Expect("ready")
	p := identify(t, l)
	if p.UID != 0 || p.GID != 0 || p.User != "root" || !slices.Equal(p.Groups, []uint32{5}) {
		t.Errorf("got %+v, want root in group 5", p.Identity)
	}
}

func TestExecIsTheSameProcess(t *testing.T) {
	l, path := role.Listen(t)
	client := start(t, nil, "connect="+path, "say=ready", "exec=/bin/cat")
	client.Expect("ready")
	p := identify(t, l)
	client.Resume() // cat answers with the same line
	client.Expect("")
	if err := p.Alive(); err != nil {
		t.Errorf("got %v, want a process that is alive", err)
	}
	if got, err := os.Readlink(proc.Path(p.PID, "exe")); got != "/usr/bin/cat" && got != "/bin/cat" {
		t.Errorf("got executable %q, %v, want cat", got, err)
	}
}

// A process that holds a passed descriptor acts as the process that connected, until
// the latter ends.
func TestPassedDescriptor(t *testing.T) {
	role.NeedRoot(t)
	l, path := role.Listen(t)
	other := role.Dir(t) + "/other"
	receiver := start(t, nil, "setuid=1000", "receive="+other, "say=written", "wait")
	receiver.Expect("listening")
	connector := start(t, nil, "setuid=1001", "connect="+path, "pass="+other, "say=passed", "wait")
	connector.Expect("passed")
	receiver.Expect("written")

	conn := role.Accept(t, l)
	p, err := new(Identifier).FromConn(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.UID != 1001 || p.PID != connector.Pid() {
		t.Errorf("got %+v, want the process that connected", p.Identity)
	}
	connector.Kill()
	if err := p.Alive(); !errors.Is(err, ErrGone) {
		t.Errorf("got %v after the connector ended, want ErrGone", err)
	}
	got := make([]byte, 5)
	if _, err := conn.Read(got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v from the receiver", got, err)
	}
}

func TestDeadAtAccept(t *testing.T) {
	role.NeedRoot(t)
	for _, reaped := range []bool{true, false} {
		l, path := role.Listen(t)
		client := start(t, nil, "setuid=1000", "connect="+path)
		conn := role.Accept(t, l)
		if reaped {
			client.Cmd.Wait()
		} else {
			awaitZombie(t, client.Cmd.Process.Pid)
		}
		p, err := new(Identifier).FromConn(conn)
		var refused *Refused
		if !errors.As(err, &refused) || !errors.Is(err, ErrGone) {
			t.Fatalf("reaped %t: got %+v, %v, want ErrGone", reaped, p, err)
		}
		if got := refused.Identity; got.UID != 1000 || got.PID != client.Pid() || got.Unit != "" {
			t.Errorf("reaped %t: got %+v", reaped, got)
		}
	}
}

// awaitZombie waits until a child has ended, and leaves it unwaited for.
func awaitZombie(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}

func TestDeathAfterAccept(t *testing.T) {
	l, path := role.Listen(t)
	client := start(t, nil, "connect="+path, "say=ready", "wait")
	client.Expect("ready")
	p := identify(t, l)
	if err := p.Alive(); err != nil {
		t.Fatal(err)
	}
	client.Cmd.Process.Kill()
	awaitZombie(t, client.Cmd.Process.Pid)
	if err := p.Alive(); !errors.Is(err, ErrGone) {
		t.Errorf("zombie: got %v, want ErrGone", err)
	}
	client.Kill()
	if err := p.Alive(); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
}

// A client that is root in a user namespace of its own is who it is outside.
func TestClientInUserNamespace(t *testing.T) {
	role.NeedRoot(t)
	l, path := role.Listen(t)
	client := start(t, rootlessRoot(1000), "connect="+path, "say=ready", "wait")
	client.Expect("ready")
	p := identify(t, l)
	if p.UID != 1000 || p.GID != 1000 {
		t.Errorf("got %+v, want uid and gid 1000", p.Identity)
	}
}

// rootlessRoot makes a process root in a user namespace, and id outside.
func rootlessRoot(id int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		Credential:  &syscall.Credential{NoSetGroups: true},
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}},
	}
}

func TestListenerInUserNamespaceRefusesStrangers(t *testing.T) {
	role.NeedRoot(t)
	path := role.Dir(t) + "/s"
	server := start(t, rootlessRoot(1000), "listen="+path, "accept", "accept")
	server.Expect("listening")
	client := start(t, nil, "setuid=1001", "connect="+path, "say=ready", "wait")
	client.Expect("ready")
	if v := server.verdict(); !v.Unmapped || v.Identity.UID != OverflowUID {
		t.Errorf("a uid that the namespace cannot name: got %+v, want it refused as unmapped", v)
	}
	mapped := start(t, nil, "setgid=1000", "setuid=1000", "connect="+path, "say=ready", "wait")
	mapped.Expect("ready")
	if v := server.verdict(); v.Error != "" || v.Identity.UID != 0 {
		t.Errorf("the uid that it can name: got %+v, want uid 0", v)
	}
}

func TestListenerInPIDNamespaceRefusesStrangers(t *testing.T) {
	role.NeedRoot(t)
	path := role.Dir(t) + "/s"
	server := start(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "listen="+path, "accept")
	server.Expect("listening")
	client := start(t, nil, "connect="+path, "say=ready", "wait")
	client.Expect("ready")
	if v := server.verdict(); !v.Unmapped || v.Identity.PID != 0 {
		t.Errorf("got %+v, want it refused as unmapped", v)
	}
}

// A service that is out of descriptors must not take a unit's process for one
// without a unit.
func TestOutOfDescriptors(t *testing.T) {
	role.NeedRoot(t)
	for _, c := range []struct {
		descriptors int // for the connection, the pidfd and /proc
		want        string
	}{{3, ""}, {2, "/stat: too many open files"}} {
		path := role.Dir(t) + "/s"
		server := start(t, nil, "listen="+path, "descriptors="+strconv.Itoa(c.descriptors), "accept")
		server.Expect("listening")
		client := start(t, nil, "connect="+path, "say=ready", "wait")
		client.Expect("ready")
		v := server.verdict()
		refused := strings.HasSuffix(v.Error, c.want) && v.Identity.StartTime == 0 && v.Identity.PID == client.Pid() && !v.Gone
		if c.want == "" && (v.Error != "" || v.Identity.StartTime == 0) || c.want != "" && (v.Error == "" || !refused) {
			t.Errorf("%d descriptors: got %+v, want the error %q", c.descriptors, v, c.want)
		}
	}
}

// As on a kernel before 6.5, by a seccomp filter.
func TestWithoutPeerPidfd(t *testing.T) {
	role.NeedRoot(t)
	path := role.Dir(t) + "/s"
	server := start(t, nil, "filter", "listen="+path, "accept", "alive", "wait", "alive", "wait", "accept", "wait", "accept")
	server.Expect("listening")

	client := start(t, nil, "setgroups=27", "setgid=33", "setuid=33", "connect="+path, "say=ready", "wait")
	client.Expect("ready")
	v := server.verdict()
	started := v.Identity.StartTime
	v.Identity.StartTime, v.Identity.Unit = 0, ""
	want := verdict{Identity: Identity{UID: 33, GID: 33, User: "www-data", Groups: []uint32{27}, PID: client.Pid(), UnitRacy: true}}
	if !reflect.DeepEqual(v, want) || started == 0 {
		t.Errorf("got %+v, started %d, want %+v", v, started, want)
	}
	if v := server.verdict(); v.Error != "" {
		t.Errorf("alive: got %+v", v)
	}
	client.Kill()
	server.Resume()
	if v := server.verdict(); !v.Gone {
		t.Errorf("after its end: got %+v, want that it is gone", v)
	}

	changed := start(t, nil, "connect="+path, "setuid=1000", "say=ready", "wait")
	changed.Expect("ready")
	server.Resume()
	if v := server.verdict(); !v.Gone || v.Identity.UID != 0 {
		t.Errorf("changed its user: got %+v, want it refused", v)
	}

	dead := start(t, nil, "connect="+path)
	dead.Cmd.Wait()
	server.Resume()
	if v := server.verdict(); !v.Gone {
		t.Errorf("dead at accept: got %+v, want that it is gone", v)
	}
}

func TestHasPeerPidfd(t *testing.T) {
	if has, err := HasPeerPidfd(); !has || err != nil {
		t.Errorf("got %t, %v, on a kernel that has it", has, err)
	}
}

func TestCloseIsFinal(t *testing.T) {
	l, path := role.Listen(t)
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	p := identify(t, l)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for p.Alive() == nil {
			}
		})
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	group.Wait()
	if err := p.Alive(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want net.ErrClosed", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("second close: got %v", err)
	}
}

func TestFromConnLeaksNothing(t *testing.T) {
	l, path := role.Listen(t)
	dead := start(t, nil, "connect="+path)
	gone := role.Accept(t, l)
	dead.Cmd.Wait()
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn := role.Accept(t, l)
	var identifier Identifier
	if _, err := identifier.FromConn(gone); !errors.Is(err, ErrGone) {
		t.Fatalf("got %v, want ErrGone", err)
	}
	before := openFiles(t)
	for range 100 {
		if _, err := identifier.FromConn(gone); !errors.Is(err, ErrGone) {
			t.Fatalf("got %v, want ErrGone", err)
		}
		p, err := identifier.FromConn(conn)
		if err != nil {
			t.Fatal(err)
		}
		flags, err := unix.FcntlInt(uintptr(p.pidfd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Fatalf("pidfd has flags %#x, %v, want close-on-exec", flags, err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if after := openFiles(t); after != before {
		t.Errorf("got %d open files, want %d", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestFromConnOfAClosedConnection(t *testing.T) {
	l, path := role.Listen(t)
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn := role.Accept(t, l)
	conn.Close()
	if p, err := new(Identifier).FromConn(conn); err == nil {
		t.Errorf("got %+v, want an error", p)
	}
}

func TestRefusedSaysWho(t *testing.T) {
	err := &Refused{Identity: Identity{UID: 65534, PID: 7}, Err: ErrUnmapped}
	if got, want := err.Error(), "peer with uid 65534, pid 7: the peer is outside this namespace"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
