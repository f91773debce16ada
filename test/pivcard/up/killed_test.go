package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test's own program be the command, so that it can be killed.
func TestMain(m *testing.M) {
	if os.Getenv("BE_UP") != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestKilled kills the command: pcscd must not outlive it.
func TestKilled(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-dir", t.TempDir())
	cmd.Env = append(os.Environ(), "BE_UP=1")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	said := bufio.NewScanner(out)
	for said.Scan() && said.Text() != "READY=1" {
	}
	children := childrenOf(t, cmd.Process.Pid)
	if len(children) != 1 {
		t.Fatalf("children %v, want pcscd", children)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); running(children[0]); {
		if time.Now().After(deadline) {
			t.Fatalf("pcscd %s outlives its rig", children[0])
		}
		time.Sleep(time.Millisecond)
	}
}

func childrenOf(t *testing.T, pid int) []string {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if os.IsNotExist(err) {
			continue // a thread that has ended
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.Fields(string(b))...)
	}
	return all
}

// running reports whether the process is there and no zombie.
func running(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}
