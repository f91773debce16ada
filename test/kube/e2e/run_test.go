package e2e

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// must runs a command and returns its standard output.
func must(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	o := run(cmd)
	if o.code != 0 {
		t.Fatalf("%s: exit %d\n%s%s", filepath.Base(cmd.Path), o.code, o.stdout, o.stderr)
	}
	return o.stdout
}

// outcome is how a command ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// run runs a command. One that cannot be started has code -1.
func run(cmd *exec.Cmd) outcome {
	var stdout, stderr buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	err := cmd.Run()
	o := outcome{code: -1, stdout: stdout.String(), stderr: stderr.String()}
	switch {
	case cmd.ProcessState != nil:
		o.code = cmd.ProcessState.ExitCode()
	case err != nil:
		o.stderr += err.Error()
	}
	return o
}

// as makes a command run as another uid.
func as(uid uint32, cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}
