package systemd_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/varlink"
)

// The test program is also the client inside the container: it prints the name of
// the last interface of the service at the socket, or what one member of a method's
// reply is, or how far a request through the proxy came, or why there is none.
const clientName = "client"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == clientName {
		fmt.Println(ask(os.Args[1], os.Args[2:]...))
		return
	}
	os.Exit(m.Run())
}

func ask(socket string, question ...string) string {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if len(question) == 2 && question[0] == "visit" {
		return visit(socket, question[1])
	}
	if len(question) == 2 {
		reply := map[string]any{}
		if err := varlink.NewConn(conn).Call(ctx, question[0], struct{}{}, &reply); err != nil {
			return err.Error()
		}
		return fmt.Sprint(reply[question[1]])
	}
	var info struct{ Interfaces []string }
	if err := varlink.NewConn(conn).Call(ctx, "org.varlink.service.GetInfo", nil, &info); err != nil {
		return err.Error()
	}
	return info.Interfaces[len(info.Interfaces)-1]
}

const jobUnit = `[Unit]
After=basic.target
[Service]
Type=oneshot
ExecStart=%s/machine.sh
`

// The units do what they are for under a systemd that has booted: activation by
// socket, the sandbox, reload, and callers who notice nothing when the agent is
// killed or restarted; keys on a card; the broker seals its key, and its proxy tells
// whose a connection is. The machine is a copy-on-write view of this one, with a
// software TPM and a software card.
func TestMachine(t *testing.T) {
	nspawn := tool(t, "systemd-nspawn")
	if os.Geteuid() != 0 {
		t.Fatal("root is missing: systemd-nspawn needs it")
	}
	dir := machineDirectory(t)
	root := t.TempDir()
	// The mount is in a namespace of its own and goes with it.
	boot := `mount --bind / "$1" && exec timeout 120 "$2" -D "$1" --volatile=overlay --register=no --keep-unit --private-network ` +
		`--console=pipe --machine=holdfast-test --bind="$3" --bind-ro="$3/job.service:/etc/systemd/system/job.service" -b systemd.wants=job.service`
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", boot, "sh", root, nspawn, dir)
	console, err := cmd.CombinedOutput()
	results, rerr := os.ReadFile(filepath.Join(dir, "results"))
	if rerr != nil {
		t.Fatalf("the machine did not run: %v\n%s", err, console)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(results)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		got[name] = value
	}
	const answers, broker = "io.holdfast.Agent", "io.holdfast.Broker"
	want := map[string]string{
		"before": "inactive", "first": answers, "admin": answers, "other-user": answers,
		"other-user-admin": "dial unix /run/holdfast/admin.sock: connect: permission denied",
		"uid":              "holdfast", "groups": "holdfast tss", "sandbox": "0000000000000000 1 2",
		"network": "private", "users": "shared", "reload": "0",

		// The child for cards can be executed and reaches pcscd, in the agent's sandbox;
		// nothing else can be executed.
		"card-list": "1", "card-key": "attestation   the card has proved that it made the key", "card-signs": "OK",
		"card-child": "0000000000000000 1 2", "card-child-runs": "0", "shell-runs": "126", "systemd-runs": "126", "loader-runs": "127",
		"user-card": "1", "card-gone": "holdfast: error: pcscd is not running",
		"polkit-access_pcsc": "0 1", "polkit-access_card": "0 1", // the agent may, the broker may not

		"after-kill": answers, "restart": answers, "after-stop": answers, "state-directory": "holdfast 700",
		"user-first": answers, "user-reload": "0", "user-sandbox": "1 2", "user-after-kill": answers,

		// The machine's broker may not look into root's processes, unless it is given
		// the capabilities for it; a user's own may look into the user's.
		"broker-proxy": "401", "broker-proxy-drop-in": "502", "user-broker-proxy": "502",
		"broker-key": "sealed by the TPM", "user-broker-key": "sealed by the TPM",

		"broker-before": "inactive", "broker-first": broker, "broker-status": "system", "broker-other-user": "system",
		"broker-uid": "holdfast-broker", "broker-sandbox": "0000000000000000 1 2", "broker-reload": "0",
		"broker-after-kill": broker, "broker-after-stop": broker, "broker-state": "holdfast-broker 700",
		"broker-drop-in": "0000000000080004 0000000000080004", // CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH
		"renew-timer":    "active", "renew-nothing": "0 no", "renew-not-due": "0 yes",

		"user-broker-before": "inactive", "user-broker": broker, "user-broker-status": "user", "user-broker-reload": "0",
		"user-broker-agent":   "/run/holdfast/agent.sock",
		"user-broker-sandbox": "1 2", "user-broker-state": "bob 700", "user-renew-timer": "active",
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: got %q, want %q", name, got[name], value)
		}
	}
	if t.Failed() {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		t.Logf("%s", log)
	}
}

// machineDirectory has everything that machine.sh wants beside it.
func machineDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build(t, dir, "CGO_ENABLED=0", "holdfast/agent/holdfast-agent", "holdfast/client/holdfast-broker",
		"holdfast/client/holdfast-exec-plugin", "holdfast/client/holdfast", "holdfast/test/pivcard/up")
	build(t, dir, "CGO_ENABLED=1", "holdfast/piv/holdfast-piv")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copies := map[string]string{
		self: clientName, "testdata/machine.sh": "machine.sh", "testdata/card.sh": "card.sh", "testdata/pcsc.policy": "pcsc.policy",
		"../packaging/polkit/holdfast.rules":    "polkit.rules",
		"../packaging/sysusers.d/holdfast.conf": "sysusers.conf", "../packaging/tmpfiles.d/holdfast.conf": "tmpfiles.conf",
		"../packaging/examples/holdfast-broker-proxy.conf": "proxy.conf", "testdata/policy.yaml": "policy.yaml",
	}
	for _, manager := range []string{"system", "user"} {
		for _, unit := range units(t, manager) {
			copies[unit] = unit
		}
	}
	for from, to := range copies {
		copyFile(t, from, filepath.Join(dir, to))
	}
	if err := os.WriteFile(filepath.Join(dir, "job.service"), fmt.Appendf(nil, jobUnit, dir), 0o644); err != nil {
		t.Fatal(err)
	}
	// The client runs as other users too.
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// build builds programs into a directory.
func build(t *testing.T, dir, cgo string, programs ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false", "-o", dir}, programs...)...)
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}
