package prompt

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/internal/proc"
	"holdfast/test/role"
)

func TestMain(m *testing.M) { role.Main(m, playRole) }

// playRole is what a process in a role does: the process that wants a key, or a
// pinentry.
func playRole(name string, args []string) error {
	if name == "pinentry" {
		return playPinentry(args[0])
	}
	return playCaller(name)
}

// playCaller is the process that wants a key. It waits to be killed.
func playCaller(name string) error {
	switch name {
	case "background": // with a child that is not in the terminal's foreground
		if _, err := startJob(&syscall.SysProcAttr{Setpgid: true}); err != nil {
			return err
		}
	case "listen":
		if _, err := net.Listen("unix", os.Getenv("LISTEN")); err != nil {
			return err
		}
	case "shell": // with a child that is, and that it takes the terminal back from
		taken := make(chan os.Signal, 1)
		signal.Notify(taken, unix.SIGUSR1)
		cmd, err := startJob(&syscall.SysProcAttr{Setpgid: true, Foreground: true, Ctty: 0})
		if err != nil {
			return err
		}
		signal.Ignore(unix.SIGINT, unix.SIGTTOU) // not before: the child would have it too
		go func() {
			cmd.Wait()
			taken <- unix.SIGCHLD
		}()
		<-taken
		if err := unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp()); err != nil {
			return err
		}
	}
	for {
		_ = unix.Pause()
	}
}

func startJob(attributes *syscall.SysProcAttr) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(role.Environ("wait"), "TERM="+os.Getenv("TERM"))
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
func playPinentry(dir string) error {
	var s script
	text, err := os.ReadFile(filepath.Join(dir, "script"))
	if err := errors.Join(err, json.Unmarshal(text, &s)); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	environ := os.Environ()
	slices.Sort(environ)
	fmt.Fprintf(log, "PID %d\nENV %s\n", os.Getpid(), strings.Join(environ, " "))
	if s.Stubborn {
		signal.Ignore(unix.SIGTERM)
	}
	if s.Leave {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env, cmd.Stdout = role.Environ("wait"), os.Stdout
		if err := cmd.Start(); err != nil {
			return err
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
	return nil
}

func orElse(s, usual string) string {
	if s != "" {
		return s
	}
	return usual
}

// start starts a process in a role, which ends with the test.
func start(t *testing.T, name string, attributes *syscall.SysProcAttr, env ...string) int32 {
	t.Helper()
	p := role.Start(t, role.Options{Role: name, Env: env, Attributes: attributes})
	running(t, p.Pid())
	return p.Pid()
}

// subject is what is asked about the process.
func subject(t *testing.T, pid int32) Subject {
	t.Helper()
	p, err := look(pid)
	if err != nil {
		t.Fatal(err)
	}
	uids, err := proc.ReadUIDs(pid)
	if err != nil {
		t.Fatal(err)
	}
	return Subject{
		UID: uids.Effective(), PID: pid, Start: p.Start, Verified: true,
		Key: "alice", Purpose: "tls-client", Operation: "sign-tls-client", Device: "card 12345678",
	}
}
