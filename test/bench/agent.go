package main

import (
	"context"
	"crypto"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// testTimeout bounds everything that has to succeed.
const testTimeout = 20 * time.Second

// keyName is the key that the agents of this program sign with.
const keyName = "bench"

// An agent is a holdfast-agent and the directory of all its files.
type agent struct {
	binary string
	dir    string
	socket string
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has ended
}

// buildAgent compiles holdfast-agent as it is shipped.
func buildAgent(b *bench) string {
	path := filepath.Join(b.Dir(), "holdfast-agent")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "holdfast/agent/holdfast-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("go build: %w: %s", err, out)
	}
	return path
}

// startAgent starts an agent on device and makes its key.
func startAgent(b *bench, device string, args ...string) *agent {
	return startAgentIn(b, b.Dir(), device, args...)
}

func startAgentIn(b *bench, dir, device string, args ...string) *agent {
	a := &agent{binary: buildAgent(b), dir: dir, socket: filepath.Join(dir, "agent.sock")}
	a.run(b, exec.Command(a.binary, append(a.args(device), args...)...))
	c := a.dial(b)
	defer c.Close()
	_, err := c.CreateKey(context.Background(), agentwire.CreateKeyParameters{Name: keyName, Purpose: string(keys.TLSClient)})
	b.Check("create key", err)
	return a
}

// args are the flags of an agent whose files are all in dir.
func (a *agent) args(device string) []string {
	return []string{
		"--state", filepath.Join(a.dir, "state"), "--audit", filepath.Join(a.dir, "audit.log"),
		"--socket", a.socket, "--device", device,
	}
}

// run starts cmd, which is the agent or becomes it, waits for the socket, and
// kills it with the figure.
func (a *agent) run(b *bench, cmd *exec.Cmd) {
	var log strings.Builder // read only when cmd has ended
	cmd.Stderr = &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	b.Check("agent", cmd.Start())
	a.cmd, a.ended = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(a.ended)
	}()
	b.Cleanup(a.stop)
	for deadline := time.Now().Add(testTimeout); !a.listens(); {
		select {
		case <-a.ended:
			b.Fatalf("the agent has ended: %s", log.String())
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(deadline) {
			a.stop()
			b.Fatalf("no agent at %s: %s", a.socket, log.String())
		}
	}
}

// listens looks in the kernel's list: to connect would start an agent that waits
// for its first caller. The flag is SO_ACCEPTCON (proc_net_unix(5)).
func (a *agent) listens() bool {
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(sockets)) {
		if f := strings.Fields(line); len(f) == 8 && f[3] == "00010000" && f[7] == a.socket {
			return true
		}
	}
	return false
}

// stop has the agent end in good order, so that it leaves nothing in the TPM.
func (a *agent) stop() {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.ended:
	case <-time.After(testTimeout):
		_ = a.cmd.Process.Kill()
		<-a.ended
	}
}

func (a *agent) dial(b *bench) *client.Client {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := client.Dial(ctx, &client.Options{Socket: a.socket})
	b.Check("agent", err)
	return c
}

// key returns the agent's key as a program has it. Its client closes with b.
func (a *agent) key(b *bench) *client.Key {
	c := a.dial(b)
	b.Cleanup(func() { c.Close() })
	k, err := c.Key(context.Background(), keyName)
	b.Check("key", err)
	return k
}

// signer is the side of clients that share one client.Client.
func signer(k *client.Key) side {
	return func(int) error {
		_, err := k.SignMessage(nil, clientMessage(), crypto.SHA256)
		return err
	}
}

// resident returns how much memory of the agent is in RAM, in MiB.
func (a *agent) resident(b *bench) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	b.Check("memory", err)
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	var kib float64
	_, err = fmt.Sscan(after, &kib)
	b.Check("memory", err)
	return kib / 1024
}
