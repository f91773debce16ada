package main

import (
	"bufio"
	"context"
	"crypto"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/client"
	"holdfast/test/bench/measure"
	"holdfast/test/swtpm"
)

const (
	busyCommand     = "busy" // the argument that makes this program the busy peer
	busyConnections = 31
	busyUID         = 1000 // of the busy peer, where this program is root

	// fairSign makes the TPM's time, not the processor's, what is waited for.
	fairSign     = 5 * time.Millisecond
	fairRequests = 300
)

// fairPolicy lets both peers sign with the machine's key.
const fairPolicy = `version: 1
rules:
  - allow: [all]
    uids: [0, 1000]
    owner: any
`

// politeWait is how long one caller waits for a signature, in times T of an
// undisturbed one, while a peer of another uid keeps 31 connections busy.
func politeWait(b *bench) {
	proxy := swtpm.NewProxy(b, swtpm.Start(b), swtpm.Options{Delay: map[tpm2.TPMCC]time.Duration{tpm2.TPMCCSign: fairSign}})
	a := fairAgent(b, proxy.Device())
	sign := signer(a.key(b))
	alone := measure.Median(b.Timed(40, sign))
	b.Say("waiting beside a peer with %d busy connections, T = %v", busyConnections, alone.Round(time.Microsecond))
	startBusyPeer(b, a.socket)
	waits := b.Timed(fairRequests, sign)
	b.AtMost("polite_wait_T_p50", float64(measure.Median(waits))/float64(alone), "T", 2.5)
	b.AtMost("polite_wait_T_p99", float64(measure.Quantile(waits, 0.99))/float64(alone), "T", 4)
}

// fairAgent starts an agent that serves two uids, when we are root and can be
// both. Otherwise the peer is another process of ours.
func fairAgent(b *bench, device string) *agent {
	if os.Getuid() != 0 {
		return startAgent(b, device)
	}
	dir := b.Dir()
	b.Check("directory", os.Chmod(dir, 0o755)) // the machine's agent is for everybody to reach
	policy := filepath.Join(dir, "policy.yaml")
	b.Check("policy", os.WriteFile(policy, []byte(fairPolicy), 0o644))
	return startAgentIn(b, dir, device, "--system", "--admin-socket", filepath.Join(dir, "admin.sock"), "--policy", policy)
}

// startBusyPeer starts this program again, as another uid where that is
// possible, and waits until it is busy.
func startBusyPeer(b *bench, socket string) {
	cmd := exec.Command("/proc/self/exe", busyCommand, socket)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: busyUID, Gid: busyUID}
	}
	out, err := cmd.StdoutPipe()
	b.Check("busy peer", err)
	b.Check("busy peer", cmd.Start())
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		b.Fatalf("busy peer: %w", err)
	}
}

// busy signs on as many connections as it is worth, until it is killed. It says
// when each of them has had its first signature.
func busy(args []string) int {
	if err := busyWork(args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "busy peer:", err)
	}
	return 1
}

func busyWork(socket string) error {
	c, err := client.Dial(context.Background(), &client.Options{Socket: socket})
	if err != nil {
		return err
	}
	k, err := c.Key(context.Background(), keyName)
	if err != nil {
		return err
	}
	failed := make(chan error, busyConnections)
	var first sync.WaitGroup
	first.Add(busyConnections)
	for range busyConnections {
		go func() {
			for done := 0; ; done++ {
				if _, err := k.SignMessage(nil, clientMessage(), crypto.SHA256); err != nil {
					failed <- err
				}
				if done == 0 {
					first.Done()
				}
			}
		}()
	}
	first.Wait()
	fmt.Println("busy")
	return <-failed
}
