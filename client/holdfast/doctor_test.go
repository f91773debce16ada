package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// has reports whether something was found that is in this state and says text.
func (f findings) has(state, subject, text string) bool {
	return slices.ContainsFunc(f, func(one finding) bool {
		return one.State == state && one.Subject == subject && strings.Contains(one.Message, text)
	})
}

// examineAt runs doctor on a made-up machine.
func examineAt(socket string, m machine) (findings, int) {
	a := &app{socket: socket, machine: m}
	return a.examine(context.Background())
}

// healthy makes a machine with nothing wrong.
func healthy(t *testing.T) machine {
	t.Helper()
	root := t.TempDir()
	runtime := filepath.Join(root, "run/user/1")
	for _, dir := range []string{runtime, filepath.Join(root, "dev"), filepath.Join(root, "usr/lib/systemd/user")} {
		check(t, os.MkdirAll(dir, 0o700))
	}
	check(t, os.WriteFile(filepath.Join(root, "dev/tpmrm0"), nil, 0o600))
	check(t, os.WriteFile(filepath.Join(root, "usr/lib/systemd/user/holdfast-agent.socket"), nil, 0o600))
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/1")
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(root, "config"))
	t.Setenv("HOLDFAST_SOCKET", "")
	return machine{root}
}

// Every bad finding has a next step.
func wantHints(t *testing.T, found findings) {
	t.Helper()
	for _, one := range found {
		if one.State == stateBad && one.Hint == "" {
			t.Errorf("%+v has no hint", one)
		}
	}
}

func TestDoctorHealthy(t *testing.T) {
	agent, _ := withAlice(t)
	m := healthy(t)
	found, code := examineAt(agent.Socket, m)
	if code != exitDone || found.count(stateBad) != 0 {
		t.Errorf("got code %d and %+v", code, found)
	}
	for _, want := range [][3]string{
		{stateOK, "agent", "answers at " + agent.Socket}, {stateOK, "device", "is ready"}, {stateNote, "device", "SOFTWARE TPM"},
		{stateOK, "policy", "built-in"}, {stateOK, "keys", "1 key, nothing wrong"}, {stateOK, "runtime directory", "/run/user/1"},
		{stateOK, "tpm", "you may open"},
	} {
		if !found.has(want[0], want[1], want[2]) {
			t.Errorf("nothing %s about %s says %q: %+v", want[0], want[1], want[2], found)
		}
	}
}

// Each case starts from a healthy machine and an agent that answers.
func TestDoctorFaults(t *testing.T) {
	tests := map[string]struct {
		spoil         func(t *testing.T, agent *clienttest.Agent, m machine)
		state         string
		subject, text string
		code          int
	}{
		"no device": {func(_ *testing.T, a *clienttest.Agent, _ machine) { a.Status.Devices = nil }, stateBad, "device", "no device", 1},
		"a notice": {func(_ *testing.T, a *clienttest.Agent, _ machine) {
			a.Status.Notices = []agentwire.Notice{{Message: "set aside"}}
		}, stateNote, "agent", "set aside", 0},
		"a problem": {func(_ *testing.T, a *clienttest.Agent, _ machine) {
			a.Status.Notices = []agentwire.Notice{{Message: "a key record is set aside", Hint: "repair it", Problem: true}}
		}, stateBad, "agent", "set aside", 1},
		"not valid yet": {func(t *testing.T, a *clienttest.Agent, _ machine) {
			a.Change("alice", func(k *agentwire.Key) { k.Chain = [][]byte{valid(t, time.Hour, 30*24*time.Hour)} })
		}, stateBad, "key alice", "is not valid before", 1},
		"expires within a day": {func(t *testing.T, a *clienttest.Agent, _ machine) {
			a.Change("alice", func(k *agentwire.Key) { k.Chain = [][]byte{valid(t, -time.Hour, 20*time.Hour)} })
		}, stateBad, "key alice", "expires within a day", 1},
		"a faulty key": {func(_ *testing.T, a *clienttest.Agent, _ machine) {
			a.Change("alice", func(k *agentwire.Key) { k.Fault = "bad signature" })
		}, stateBad, "key alice", "bad signature", 1},
		"imported": {func(_ *testing.T, a *clienttest.Agent, _ machine) {
			a.Change("alice", func(k *agentwire.Key) { k.Imported = true })
		}, stateNote, "key alice", "imported", 0},
		"damaged chain": {func(_ *testing.T, a *clienttest.Agent, _ machine) {
			a.Change("alice", func(k *agentwire.Key) { k.Chain = [][]byte{{1}} })
		}, stateBad, "key alice", "damaged", 1},
		"soon to expire": {func(t *testing.T, a *clienttest.Agent, _ machine) {
			a.Change("alice", func(k *agentwire.Key) { k.Chain = [][]byte{valid(t, -time.Hour, 10*24*time.Hour)} })
		}, stateNote, "key alice", "expires on", 0},
		"keys refused": {func(_ *testing.T, a *clienttest.Agent, _ machine) {
			a.Fail(agentwire.ListKeys, &fault.Error{Kind: fault.Denied, Message: "not yours", Hint: "ask"})
		}, stateBad, "keys", "not yours", 1},
		"status refused": {func(_ *testing.T, a *clienttest.Agent, _ machine) {
			a.Fail(agentwire.GetStatus, &fault.Error{Kind: fault.Denied, Message: "not you", Hint: "ask"})
		}, stateBad, "agent", "not you", 1},
		"bad policy file": {func(t *testing.T, a *clienttest.Agent, _ machine) { a.Status.Policy = file(t, []byte("version: 7\n")) }, stateBad, "policy", ":1", 1},
		"no TPM":          {func(t *testing.T, _ *clienttest.Agent, m machine) { check(t, os.Remove(m.path("/dev/tpmrm0"))) }, stateNote, "tpm", "there is no /dev/tpmrm0", 0},
		"runtime directory open to others": {func(t *testing.T, _ *clienttest.Agent, m machine) {
			check(t, os.Chmod(m.path("/run/user/1"), 0o755))
		}, stateBad, "runtime directory", "mode 0755", 1},
		"runtime directory of another user": {func(t *testing.T, _ *clienttest.Agent, m machine) {
			check(t, os.Chown(m.path("/run/user/1"), 4711, -1))
		}, stateBad, "runtime directory", "uid 4711", 1},
		"runtime directory missing": {func(t *testing.T, _ *clienttest.Agent, m machine) { check(t, os.Remove(m.path("/run/user/1"))) }, stateBad, "runtime directory", "no such file", 1},
		"no runtime directory":      {func(t *testing.T, _ *clienttest.Agent, _ machine) { t.Setenv("XDG_RUNTIME_DIR", "") }, stateNote, "runtime directory", "not set", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			agent, _ := withAlice(t)
			m := healthy(t)
			test.spoil(t, agent, m)
			found, code := examineAt(agent.Socket, m)
			if !found.has(test.state, test.subject, test.text) || code != test.code {
				t.Errorf("got code %d and %+v, want %d and something %s that says %q", code, found, test.code, test.state, test.text)
			}
			wantHints(t, found)
		})
	}
}

func TestDoctorDeviceStates(t *testing.T) {
	agent, _ := withAlice(t)
	m := healthy(t)
	for _, state := range []keys.State{
		keys.StateAbsent, keys.StateBusy, keys.StateLocked, keys.StateWedged, keys.StateFailed, keys.StateIdentityChanged, keys.StateUnopened,
	} {
		agent.Status.Devices = []agentwire.Device{{Backend: "tpm", Device: "tpm:/dev/x", State: string(state), Reason: "why"}}
		found, code := examineAt(agent.Socket, m)
		if code != exitFailed || !found.has(stateBad, "device", "tpm:/dev/x is "+string(state)+": why") {
			t.Errorf("%s: got code %d and %+v", state, code, found)
		}
		wantHints(t, found)
	}
}

// Without an agent, what the machine lacks is what is wrong.
func TestDoctorWithoutAgent(t *testing.T) {
	tests := map[string]struct {
		spoil                func(t *testing.T, m machine)
		state, subject, want string
	}{
		"nothing else":    {func(*testing.T, machine) {}, stateNote, "unit", "/usr/lib/systemd/user/holdfast-agent.socket is installed"},
		"no unit":         {func(t *testing.T, m machine) { check(t, os.RemoveAll(m.path("/usr/lib"))) }, stateBad, "unit", "no unit"},
		"no TPM":          {func(t *testing.T, m machine) { check(t, os.Remove(m.path("/dev/tpmrm0"))) }, stateBad, "tpm", "there is no /dev/tpmrm0"},
		"no manager":      {func(t *testing.T, m machine) { check(t, os.Rename(m.path("/dev/tpmrm0"), m.path("/dev/tpm0"))) }, stateBad, "tpm", "there is /dev/tpm0 and no"},
		"TPM 1.2":         {tpm12, stateBad, "tpm", "version 1.2"},
		"not a character": {func(t *testing.T, m machine) { brokenDevice(t, m) }, stateBad, "tpm", "no such device"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := healthy(t)
			test.spoil(t, m)
			found, code := examineAt(filepath.Join(t.TempDir(), "agent.sock"), m)
			if code != exitUnreachable || !found.has(stateBad, "agent", "no agent listens") || !found.has(test.state, test.subject, test.want) {
				t.Errorf("got code %d and %+v, want something %s that says %q", code, found, test.state, test.want)
			}
			wantHints(t, found)
		})
	}
}

func tpm12(t *testing.T, m machine) {
	check(t, os.Remove(m.path("/dev/tpmrm0")))
	check(t, os.MkdirAll(m.path("/sys/class/tpm/tpm0"), 0o700))
	check(t, os.WriteFile(m.path("/sys/class/tpm/tpm0/tpm_version_major"), []byte("1\n"), 0o600))
}

// brokenDevice puts something at the device's place that cannot be opened.
func brokenDevice(t *testing.T, m machine) {
	check(t, os.Remove(m.path("/dev/tpmrm0")))
	listener, err := net.Listen("unix", m.path("/dev/tpmrm0"))
	check(t, err)
	t.Cleanup(func() { listener.Close() })
}

func TestDoctorCommand(t *testing.T) {
	m := healthy(t)
	t.Setenv("XDG_RUNTIME_DIR", m.path("/run/user/1"))
	c := command{socket: filepath.Join(t.TempDir(), "agent.sock")}
	got := c.run("doctor")
	got.want(t, 3, "wrong", "hint: start with the first one above")
	if !strings.Contains(got.stdout, "bad  agent") || !strings.Contains(got.stdout, "hint: start one") {
		t.Errorf("got %q", got.stdout)
	}
	var found findings
	check(t, json.Unmarshal([]byte(c.run("doctor", "--json").stdout), &found))
	if !found.has(stateBad, "agent", "no agent listens") {
		t.Errorf("--json: got %+v", found)
	}
}

// HOLDFAST_SOCKET decides alone where the agent is: other places neither count as faults
// nor as advice.
func TestDoctorNamedSocket(t *testing.T) {
	m := healthy(t)
	t.Setenv("XDG_RUNTIME_DIR", "/missing")
	path := filepath.Join(t.TempDir(), "agent.sock")
	t.Setenv("HOLDFAST_SOCKET", path)
	found, code := examineAt("", m)
	if code != exitUnreachable || !found.has(stateBad, "agent", "no agent listens at "+path) || !found.has(stateNote, "unit", "HOLDFAST_SOCKET names") ||
		strings.Contains(found.hints(), "systemctl") || !strings.Contains(found.hints(), "unset HOLDFAST_SOCKET") {
		t.Errorf("got code %d and %+v", code, found)
	}
	if slices.ContainsFunc(found, func(f finding) bool { return f.Subject == "runtime directory" }) {
		t.Errorf("the runtime directory counts: %+v", found)
	}
}

// An agent that was told to use no cards is not told to install what is there.
func TestDoctorPIVOff(t *testing.T) {
	agent, _ := withAlice(t)
	m := healthy(t)
	agent.Status.PID = 77
	check(t, os.MkdirAll(m.path("/proc/77"), 0o700))
	check(t, os.Symlink("/opt/holdfast/bin/holdfast-agent", m.path("/proc/77/exe")))
	if found, _ := examineAt(agent.Socket, m); !found.has(stateOK, "cards", "holdfast-piv, which speaks to cards, is not installed") {
		t.Errorf("not installed: %+v", found)
	}
	put(t, m, "/opt/holdfast/bin/holdfast-piv", "")
	if found, _ := examineAt(agent.Socket, m); !found.has(stateOK, "cards", "although holdfast-piv is installed") {
		t.Errorf("switched off: %+v", found)
	}
	agent.Status.PID = 78
	if found, _ := examineAt(agent.Socket, m); !found.has(stateOK, "cards", "the agent was started without cards") {
		t.Errorf("another user's agent: %+v", found)
	}
}

// The group of the TPM is named, and nobody is sent into the group root.
func TestDeviceGroup(t *testing.T) {
	for name, test := range map[string]struct {
		gid          int
		member       bool
		mode         os.FileMode
		reason, hint string
	}{
		"root":       {0, false, 0o660, "no group may", "tpm-udev"},
		"closed":     {1, false, 0o600, "no group may (it is of group daemon, mode 0600)", "tpm-udev"},
		"not member": {1, false, 0o660, "you are not in group daemon", "join the group daemon and log in again"},
		"member":     {1, true, 0o660, "although you are in group daemon", "security policy"},
	} {
		reason, hint := memberOf(test.gid, test.member, test.mode)
		if !strings.Contains(reason, test.reason) || !strings.Contains(hint, test.hint) || strings.Contains(hint, "group root") {
			t.Errorf("%s: got %q and %q", name, reason, hint)
		}
	}
}
