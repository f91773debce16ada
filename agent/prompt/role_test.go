package prompt

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// roleVariable makes the test binary play a part in a test instead of running
// tests: the process that wants a key, or a pinentry.
const roleVariable = "HOLDFAST_PROMPT_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
	case "pinentry":
		os.Exit(playPinentry(os.Args[1]))
	default:
		os.Exit(playCaller(role))
	}
	code := m.Run()
	if path, err := binary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// binary is a copy of the test binary that every user may run.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "hf-prompt-")
	if err != nil {
		return "", err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "caller")
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, self, 0o755)
})

func binaryPath(t *testing.T) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// playCaller is the process that wants a key. It waits to be killed.
func playCaller(role string) int {
	switch role {
	case "background": // with a child that is not in the terminal's foreground
		if _, err := startJob(&syscall.SysProcAttr{Setpgid: true}); err != nil {
			return 1
		}
	case "listen":
		if _, err := net.Listen("unix", os.Getenv("LISTEN")); err != nil {
			return 1
		}
	case "shell": // with a child that is, and that it takes the terminal back from
		taken := make(chan os.Signal, 1)
		signal.Notify(taken, unix.SIGUSR1)
		cmd, err := startJob(&syscall.SysProcAttr{Setpgid: true, Foreground: true, Ctty: 0})
		if err != nil {
			return 1
		}
		signal.Ignore(unix.SIGINT, unix.SIGTTOU) // not before: the child would have it too
		go func() {
			cmd.Wait()
			taken <- unix.SIGCHLD
		}()
		<-taken
		if err := unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp()); err != nil {
			return 1
		}
	}
	for {
		_ = unix.Pause()
	}
}

func startJob(attributes *syscall.SysProcAttr) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVariable + "=wait", "TERM=" + os.Getenv("TERM")}
	cmd.Stdin = os.Stdin
	cmd.SysProcAttr = attributes
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	runtime.LockOSThread() // the signal comes when the thread ends
	return cmd, cmd.Start()
}

// A script is what a played pinentry does.
type script struct {
	Greeting string              // instead of OK
	Replies  map[string][]string // by the command's word: the lines of the reply; without one, OK
	Hang     string              // the command that is not answered
	Stubborn bool                // a signal does not end it
	Leave    bool                // it leaves a process behind that holds its output
}

// playPinentry answers as the script in dir says, and writes down what it was
// told and its environment.
func playPinentry(dir string) int {
	var s script
	text, err := os.ReadFile(filepath.Join(dir, "script"))
	if err != nil || json.Unmarshal(text, &s) != nil {
		return 1
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	environ := os.Environ()
	slices.Sort(environ)
	fmt.Fprintf(log, "PID %d\nENV %s\n", os.Getpid(), strings.Join(environ, " "))
	if s.Stubborn {
		signal.Ignore(unix.SIGTERM)
	}
	if s.Leave {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env, cmd.Stdout = []string{roleVariable + "=wait"}, os.Stdout
		if err := cmd.Start(); err != nil {
			return 1
		}
		fmt.Fprintf(log, "LEFT %d\n", cmd.Process.Pid)
	}
	fmt.Println(orElse(s.Greeting, "OK here"))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Fprintln(log, in.Text())
		word, _, _ := strings.Cut(in.Text(), " ")
		if word == s.Hang {
			for {
				_ = unix.Pause()
			}
		}
		if lines, found := s.Replies[word]; found {
			fmt.Print(strings.Join(lines, "\n") + "\n")
		} else {
			fmt.Println("OK")
		}
	}
	return 0
}

func orElse(s, usual string) string {
	if s != "" {
		return s
	}
	return usual
}

// start starts a process in a role, which ends with the test.
func start(t *testing.T, role string, attributes *syscall.SysProcAttr, env ...string) int32 {
	t.Helper()
	cmd := exec.Command(binaryPath(t))
	cmd.Env = append(env, roleVariable+"="+role)
	cmd.SysProcAttr = attributes
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	running(t, int32(cmd.Process.Pid))
	return int32(cmd.Process.Pid)
}

// subject is what is asked about the process.
func subject(t *testing.T, pid int32) Subject {
	t.Helper()
	p, err := look(pid)
	if err != nil {
		t.Fatal(err)
	}
	uid, err := uidOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	return Subject{
		UID: uid, PID: pid, Start: p.start, Verified: true,
		Key: "alice", Purpose: "tls-client", Operation: "sign-tls-client", Device: "card 12345678",
	}
}
