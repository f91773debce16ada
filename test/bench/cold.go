package main

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"holdfast/test/bench/measure"
	"holdfast/test/swtpm"
)

// firstSignature is how long a caller waits for a signature when its connection
// is what starts the agent, and how many commands the TPM has been given when
// it arrives. Reading the agent's binary and systemd's part are in it; the TPM
// is up and holds nothing.
func firstSignature(b *bench) {
	device := swtpm.Start(b)
	made := startAgent(b, device.Device())
	made.stop()
	b.Say("first signatures of cold agents")
	var took []float64
	for range measure.Rounds {
		d := coldSignature(b, made, device.Device(), func() {})
		took = append(took, float64(d)/float64(time.Millisecond))
	}
	b.AtMost("first_signature_ms", measure.Median(took), "ms", 30)

	proxy := swtpm.NewProxy(b, device, swtpm.Options{})
	var total float64
	coldSignature(b, made, proxy.Device(), func() {
		total = float64(proxy.Total())
		b.Say("TPM commands by code until the first signature: %#x", proxy.Counts())
	})
	b.AtMost("first_signature_tpm_commands", total, "commands", 4)
}

// coldSignature starts an agent on made's state the way systemd does, calls
// signed when the signature is there, and returns the time from the call of
// client.Dial to the signature.
func coldSignature(b *bench, made *agent, device string, signed func()) time.Duration {
	_ = os.Remove(made.socket)
	a := &agent{binary: made.binary, dir: made.dir, socket: made.socket}
	args := append([]string{"--listen=" + a.socket, "--fdname=agent", a.binary}, a.args(device)...)
	mask := syscall.Umask(0o177) // a socket unit would say SocketMode=0600
	a.run(b, exec.Command("systemd-socket-activate", args...))
	syscall.Umask(mask)
	defer a.stop()
	start := time.Now()
	b.Timed(1, signer(a.key(b)))
	took := time.Since(start)
	signed()
	return took
}
