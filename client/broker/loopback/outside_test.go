package loopback

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// playVariable makes the test program a machine of its own: "listen" listens on a port of
// lo and on one of all interfaces and prints both, "wait" only waits.
const playVariable = "HOLDFAST_TEST_PLAY"

func TestMain(m *testing.M) {
	switch play := os.Getenv(playVariable); {
	case play == "listen":
		os.Exit(playListener())
	case play == "wait":
		fmt.Println("waiting")
		bufio.NewReader(os.Stdin).ReadString('\n') // until the test closes it
		os.Exit(0)
	case play != "":
		os.Exit(playDialer(play))
	}
	os.Exit(m.Run())
}

func playListener() int {
	local, err1 := ListenAll(0)
	wide, err2 := net.Listen("tcp4", "0.0.0.0:0")
	if err := errors.Join(err1, err2); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(local.Addr().(*net.TCPAddr).Port, wide.Addr().(*net.TCPAddr).Port)
	bufio.NewReader(os.Stdin).ReadString('\n') // until the test closes it
	return 0
}

// playDialer exits 0 when an address accepts, 3 when it refuses.
func playDialer(address string) int {
	conn, err := net.DialTimeout("tcp4", address, 10*time.Second)
	switch {
	case err == nil:
		conn.Close()
		return 0
	case errors.Is(err, syscall.ECONNREFUSED):
		return 3
	}
	fmt.Println(err)
	return 1
}

// machine starts this program in a network namespace of its own, and returns its pid and
// the first line that it prints.
func machine(t *testing.T, play string) (pid, line string) {
	t.Helper()
	cmd := exec.Command("unshare", "--net", os.Args[0])
	cmd.Env = append(os.Environ(), playVariable+"="+play)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(cmd.Process.Pid), strings.TrimSpace(line)
}

// in runs a command in a machine and returns its exit code.
func in(t *testing.T, pid string, env string, command ...string) int {
	t.Helper()
	cmd := exec.Command("nsenter", append([]string{"--net", "--target", pid}, command...)...)
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if len(out) > 0 {
		t.Logf("%v: %s", command, out)
	}
	return cmd.ProcessState.ExitCode()
}

// Another machine on the network of this one reaches the port of another program, and
// not that of the proxy. (The test makes network namespaces, and needs root for it.)
func TestNothingArrivesFromOutside(t *testing.T) {
	here, ports := machine(t, "listen")
	var local, wide int
	if _, err := fmt.Sscan(ports, &local, &wide); err != nil {
		t.Fatalf("got %q", ports)
	}
	there, _ := machine(t, "wait")
	for _, step := range [][]string{
		{here, "link", "set", "lo", "up"},
		{here, "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", there},
		{here, "address", "add", "10.99.0.1/24", "dev", "v0"},
		{here, "link", "set", "v0", "up"},
		{there, "address", "add", "10.99.0.2/24", "dev", "v1"},
		{there, "link", "set", "v1", "up"},
	} {
		if code := in(t, step[0], "", append([]string{"ip"}, step[1:]...)...); code != 0 {
			t.Fatalf("ip %v: exit code %d", step[1:], code)
		}
	}
	dial := func(pid, ip string, port int) int {
		return in(t, pid, fmt.Sprintf("%s=%s:%d", playVariable, ip, port), os.Args[0])
	}
	if code := dial(here, "127.0.0.1", local); code != 0 {
		t.Errorf("on the machine itself: exit code %d", code)
	}
	if code := dial(there, "10.99.0.1", wide); code != 0 {
		t.Errorf("the other machine does not reach this one: exit code %d", code)
	}
	if code := dial(there, "10.99.0.1", local); code != 3 {
		t.Errorf("the proxy's port, from another machine: exit code %d, want it to be refused", code)
	}
}
