package peer

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"holdfast/test/role"

	"golang.org/x/sys/unix"
)

func TestUnitOf(t *testing.T) {
	long := strings.Repeat("x", maxUnitName-len(".service"))
	cases := []struct{ path, want string }{
		{"/system.slice/x.service", "x.service"},
		{"/system.slice/x.service/init.scope", "x.service"},
		{"/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service"},
		{`/system.slice/dev-disk-by\x2duuid.service`, `dev-disk-by\x2duuid.service`},
		{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-ab.scope", "cri-containerd-ab.scope"},
		{"/machine.slice/libpod-ab.scope/container/system.slice/kubelet.service", "libpod-ab.scope"},
		{"/system.slice/x.service/kubelet.service", "x.service"},
		{"/system.slice/x.service/system.slice/kubelet.service", "x.service"},
		{"/system.slice/x.service/system.slice", "x.service"},
		{"/system.slice/" + long + ".service", long + ".service"},

		{"", ""},
		{"/", ""},
		{"//", ""},
		{"system.slice/x.service", ""},
		{"/x.service", ""},
		{"/init.scope", ""},
		{"/docker/ab/system.slice/kubelet.service", ""},
		{"/system.slice", ""},
		{"/system.slice/", ""},
		{"/system.slice/x.service/", ""},
		{"/system.slice//x.service", ""},
		{"/system.slice/x.service/../kubelet.service", ""},
		{"/system.slice/../system.slice/kubelet.service", ""},
		{"/../system.slice/kubelet.service", ""},
		{"/system.slice/./kubelet.service", ""},
		{"/system.slice/x.service/..", ""},
		{"/system.slice/system.slice/kubelet.service", ""},
		{"/system.slice/other.slice/kubelet.service", ""},
		{"/system-a.slice/kubelet.service", ""},
		{"/a.slice/a-b-c.slice/x.service", ""},
		{"/a.slice/a-.slice/x.service", ""},
		{"/-.slice/x.service", ""},
		{"/.slice/x.service", ""},
		{"/user.slice/user-1000.slice/user@1000.service/app.slice/kubelet.service", ""},
		{"/user.slice/user-1000.slice/user@1000.service", ""},
		{"/user.slice/user-1000.slice/session-3.scope", ""},
		{"/user.slice/kubelet.service", ""},
		{"/system.slice/kubelet.service (deleted)", ""},
		{"/system.slice/kubelet.service\n", ""},
		{"/system.slice/kube\nlet.service", ""},
		{"/system.slice/kubelet.service\x00", ""},
		{"/system.slice/kubelet", ""},
		{"/system.slice/.service", ""},
		{"/system.slice/..service", ""},
		{"/system.slice/_kubelet.service", ""},
		{"/system.slice/kubelet.Service", ""},
		{"/system.slice/kubelet.socket", ""},
		{"/system.slice/kub let.service", ""},
		{"/system.slice/k\u00fcbelet.service", ""},
		{"/system.slice/x" + long + ".service", ""},
	}
	for _, c := range cases {
		if got := unitOf(c.path); got != c.want {
			t.Errorf("%q: got %q, want %q", c.path, got, c.want)
		}
	}
}

func TestCgroupPath(t *testing.T) {
	cases := []struct{ text, want string }{
		{"0::/system.slice/x.service\n", "/system.slice/x.service"},
		{"9:name=systemd:/a\n1:cpu:/b\n0::/c\n", "/c"},
		{"0::/c", "/c"},
		{"0::/\n", "/"},
		{"", ""},
		{"9:name=systemd:/system.slice/x.service\n", ""},
		{"10::/x\n", ""},
		{"1:cpu:/0::/x\n", ""},
		{"0::/a\n0::/b\n", ""},
		{"0::/a b\n", "/a b"},
	}
	for _, c := range cases {
		if got := cgroupPath(c.text); got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}

func TestIsUnit(t *testing.T) {
	for name, want := range map[string]bool{
		"kubelet.service": true, "a@b.service": true, "libpod-1.scope": true, `a\x2db.service`: true,
		"": false, "kubelet": false, "system.slice": false, "*.service": false, "a/b.service": false, ".service": false,
	} {
		if got := IsUnit(name); got != want {
			t.Errorf("%q: got %t, want %t", name, got, want)
		}
	}
}

func FuzzUnitOf(f *testing.F) {
	seeds := []string{
		"0::/system.slice/x.service\n", "0::/system.slice/x.service/../y.service\n", "0::/a.slice/a-b.slice/c.scope/d\n",
		"0::/user.slice/user-1.slice/user@1.service/x.service\n", "0::/system.slice/a\\x2db.service\n", "9:name=systemd:/\n0::/\n",
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := cgroupPath(text)
		unit := unitOf(path)
		if unit == "" {
			return
		}
		if !IsUnit(unit) || strings.ContainsAny(unit, "/\n \x00") {
			t.Errorf("%q gave %q, which is no unit", text, unit)
		}
		if strings.HasPrefix(path, "/user.slice/") || strings.Contains(path, "/../") {
			t.Errorf("%q gave %q", text, unit)
		}
		slices, _, _ := strings.Cut(path, "/"+unit)
		for name := range strings.SplitSeq(strings.TrimPrefix(slices, "/"), "/") {
			if !strings.HasSuffix(name, ".slice") {
				t.Errorf("%q gave %q, below %q, which is no slice", text, unit, name)
			}
		}
	})
}

// unified returns the directory where the unified cgroup hierarchy is mounted.
func unified(t *testing.T) string {
	t.Helper()
	for _, directory := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(directory, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return directory
		}
	}
	t.Fatal("this test needs a unified cgroup hierarchy (cgroup2), writable for root")
	return ""
}

// makeCgroup makes a cgroup and removes what it has made when the test ends. It
// belongs to owner, as if it had been delegated. The last part of its path is to
// be this process's own: another run of the tests may be at work beside it, and
// may remove the parts that both use in between.
func makeCgroup(t *testing.T, path string, owner int) string {
	t.Helper()
	top := unified(t)
	var err error
	for range 100 {
		if err = os.MkdirAll(filepath.Join(top, path), 0o755); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("a cgroup cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		for part := path; part != "."; part = filepath.Dir(part) {
			unix.Rmdir(filepath.Join(top, part)) // fails while another test uses it
		}
	})
	directory := filepath.Join(top, path)
	for _, file := range []string{"", "cgroup.procs"} {
		if err := os.Chown(filepath.Join(directory, file), owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

func TestUnitOfRealProcesses(t *testing.T) {
	role.NeedRoot(t)
	own := "holdfasttest" + strconv.Itoa(os.Getpid())
	cases := []struct{ path, want string }{
		{"system.slice/" + own + ".service", own + ".service"},
		{"system.slice/" + own + `\x2dtest.service`, own + `\x2dtest.service`},
		{"system.slice/" + own + ".service/kubelet.service", own + ".service"},
		{"system.slice/system.slice/" + own + ".service", ""},
		{own + "/system.slice/kubelet.service", ""},
		{own + ".service", ""},
		{"user.slice/" + own + ".slice/user@4321.service/app.slice/kubelet.service", ""},
	}
	for _, c := range cases {
		l, path := role.Listen(t)
		cgroup := makeCgroup(t, c.path, 0)
		client := start(t, nil, "cgroup="+cgroup, "connect="+path, "say=ready", "wait")
		client.Expect("ready")
		p := identify(t, l)
		if p.Unit != c.want || p.UnitRacy {
			t.Errorf("%s: got unit %q, racy %t, want %q", c.path, p.Unit, p.UnitRacy, c.want)
		}
		client.Kill()
	}
}

// A user's own manager hands cgroups with any name to the user's processes.
func TestMoveIntoAnotherCgroupOfTheUser(t *testing.T) {
	role.NeedRoot(t)
	l, path := role.Listen(t)
	manager := "user.slice/user-" + strconv.Itoa(os.Getpid()) + ".slice/user@4321.service"
	top := makeCgroup(t, manager, 4321)
	from := makeCgroup(t, manager+"/app.slice", 4321)
	to := makeCgroup(t, manager+"/system.slice", 4321)
	service := makeCgroup(t, manager+"/system.slice/kubelet.service", 4321)
	client := start(t, nil, "cgroup="+from, "setgid=4321", "setuid=4321", "cgroup="+top, "cgroup="+to, "cgroup="+service,
		"connect="+path, "say=ready", "wait")
	client.Expect("ready")
	p := identify(t, l)
	if p.UID != 4321 || p.Unit != "" {
		t.Errorf("got %+v, want no unit", p.Identity)
	}
	client.Kill()
}

// A user cannot move a process from the own subtree into a service of the system.
func TestMoveIntoASystemServiceFails(t *testing.T) {
	role.NeedRoot(t)
	own := "holdfasttest" + strconv.Itoa(os.Getpid())
	from := makeCgroup(t, "user.slice/"+own+".slice/user@4321.service", 4321)
	to := makeCgroup(t, "system.slice/"+own+".service", 0)
	client := start(t, nil, "cgroup="+from, "setgid=4321", "setuid=4321", "cgroup="+to, "say=moved")
	if got := client.Line(); !strings.HasPrefix(got, "failed: cgroup=") {
		t.Errorf("got %q, want that the move fails", got)
	}
	client.Kill()
}
