package systemd_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tool returns the path of a program of systemd's, which needs no running
// systemd for what is done here.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing: install systemd", name)
	}
	return path
}

// units returns the files of a directory, which must not be empty.
func units(t *testing.T, directory string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, "holdfast-*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no units in %s: %v", directory, err)
	}
	return files
}

// installed copies units to a directory of their own and lets them start a
// program that exists. edit may change the text.
func installed(t *testing.T, directory string, edit func(string) string) []string {
	t.Helper()
	to := t.TempDir()
	program := filepath.Join(to, "holdfast-agent")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var copies []string
	for _, file := range units(t, directory) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		changed := edit(strings.ReplaceAll(string(text), "/usr/bin/holdfast-agent", program))
		name := filepath.Join(to, filepath.Base(file))
		if err := os.WriteFile(name, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		copies = append(copies, name)
	}
	return copies
}

func same(text string) string { return text }

// verify returns what systemd-analyze has to say about units; it exits 0 for
// words that it does not know, so what it says counts.
func verify(t *testing.T, manager string, units []string) string {
	t.Helper()
	cmd := exec.Command(tool(t, "systemd-analyze"), append([]string{"verify", "--man=no", manager}, units...)...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return err.Error() + "\n" + string(out)
	}
	return string(out)
}

func TestVerify(t *testing.T) {
	for _, manager := range []string{"system", "user"} {
		if got := verify(t, "--"+manager, installed(t, manager, same)); got != "" {
			t.Errorf("%s: %s", manager, got)
		}
		typo := func(text string) string { return strings.Replace(text, "WatchdogSec=", "WatchdogSek=", 1) }
		if got := verify(t, "--"+manager, installed(t, manager, typo)); !strings.Contains(got, "WatchdogSek") {
			t.Errorf("%s: a typo passed: %q", manager, got)
		}
	}
}

// exposure runs the judgement of systemd-analyze with a limit of 1.0, which it
// wants as 10.
func exposure(t *testing.T, units []string) error {
	t.Helper()
	i := slices.IndexFunc(units, func(u string) bool { return strings.HasSuffix(u, ".service") })
	cmd := exec.Command(tool(t, "systemd-analyze"), "security", "--offline=true", "--threshold=10", units[i])
	out, err := cmd.CombinedOutput()
	if last := bytes.LastIndex(out, []byte("Overall")); last >= 0 {
		t.Logf("%s", out[last:])
	}
	return err
}

func TestExposure(t *testing.T) {
	if err := exposure(t, installed(t, "system", same)); err != nil {
		t.Errorf("the system unit is over 1.0: %v", err)
	}
	open := func(text string) string { return strings.Replace(text, "PrivateNetwork=yes\n", "", 1) }
	if exposure(t, installed(t, "system", open)) == nil {
		t.Error("a unit with a network passed")
	}
}

// settings returns the values of each key of a unit in the order of the file.
func settings(t *testing.T, file string) map[string][]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string][]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok && !strings.HasPrefix(key, "#") {
			all[key] = append(all[key], value)
		}
	}
	return all
}

// What the score does not weigh, or weighs the wrong way: the agent could not
// tell its callers apart, could not reach its device, or would share it.
func TestSystemUnit(t *testing.T) {
	got := settings(t, "system/holdfast-agent.service")
	for key, want := range map[string]string{
		"Type": "notify", "User": "holdfast", "SupplementaryGroups": "tss", "DevicePolicy": "closed",
		"DeviceAllow": "/dev/tpmrm0 rw", "RestrictAddressFamilies": "AF_UNIX", "PrivateNetwork": "yes",
		"StateDirectory": "holdfast", "StateDirectoryMode": "0700", "CapabilityBoundingSet": "", "WatchdogSec": "30",
		"Sockets": "holdfast-agent.socket holdfast-agent-admin.socket", "Requires": "holdfast-agent.socket holdfast-agent-admin.socket",
	} {
		if values := got[key]; len(values) != 1 || values[0] != want {
			t.Errorf("%s: got %q, want %q once", key, values, want)
		}
	}
	for _, key := range []string{"PrivateUsers", "PrivateDevices", "ProtectProc", "DynamicUser", "RuntimeDirectory"} {
		if values := got[key]; values != nil {
			t.Errorf("%s is set to %q", key, values)
		}
	}
}

// The settings that a user's manager ignores, or that stop the service there with
// status 218, are not in the user unit.
func TestUserUnit(t *testing.T) {
	got := settings(t, "user/holdfast-agent.service")
	for _, key := range []string{
		"User", "Group", "SupplementaryGroups", "PrivateUsers", "PrivateDevices", "PrivateNetwork", "PrivateTmp", "CapabilityBoundingSet",
		"ProtectClock", "ProtectHome", "ProtectSystem", "ProtectKernelModules", "ProtectKernelLogs", "DevicePolicy", "DeviceAllow",
	} {
		if values := got[key]; values != nil {
			t.Errorf("%s is set to %q", key, values)
		}
	}
	for _, key := range []string{"NoNewPrivileges", "MemoryDenyWriteExecute", "LockPersonality", "RestrictSUIDSGID"} {
		if values := got[key]; len(values) != 1 || values[0] != "yes" {
			t.Errorf("%s: got %q, want yes", key, values)
		}
	}
}

// The agent takes its sockets by name, path and mode; here is where they come
// from.
func TestSockets(t *testing.T) {
	tests := []struct{ file, name, path, mode, directory string }{
		{"system/holdfast-agent.socket", "agent", "/run/holdfast/agent.sock", "0666", "0755"},
		{"system/holdfast-agent-admin.socket", "admin", "/run/holdfast/admin.sock", "0600", "0755"},
		{"user/holdfast-agent.socket", "agent", "%t/holdfast/agent.sock", "0600", "0700"},
	}
	for _, test := range tests {
		got := settings(t, test.file)
		for key, want := range map[string]string{
			"FileDescriptorName": test.name, "ListenStream": test.path, "SocketMode": test.mode, "DirectoryMode": test.directory,
		} {
			if values := got[key]; len(values) != 1 || values[0] != want {
				t.Errorf("%s: %s: got %q, want %q once", test.file, key, values, want)
			}
		}
		service := settings(t, filepath.Dir(test.file)+"/holdfast-agent.service")
		if start := service["ExecStart"][0] + " "; !strings.Contains(start, "socket "+test.path+" ") {
			t.Errorf("%s: the service starts as %q, without this socket", test.file, start)
		}
	}
}

// The files that make the user and the directories do so, in a root of their own.
func TestSysusersAndTmpfiles(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"systemd-sysusers", "--root=" + root, absolute(t, "../packaging/sysusers.d/holdfast.conf")},
		{"systemd-tmpfiles", "--root=" + root, "--create", absolute(t, "../packaging/tmpfiles.d/holdfast.conf")},
	} {
		if out, err := exec.Command(tool(t, args[0]), args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	passwd, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil || !strings.Contains(string(passwd), "holdfast:x:") || !strings.Contains(string(passwd), ":/usr/sbin/nologin") {
		t.Errorf("passwd: %v\n%s", err, passwd)
	}
	group, err := os.ReadFile(filepath.Join(root, "etc/group"))
	if err != nil || !strings.Contains(string(group), "tss:x:") {
		t.Errorf("group: %v\n%s", err, group)
	}
	info, err := os.Stat(filepath.Join(root, "run/holdfast"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("run/holdfast: %v, %v, want mode 0755", info, err)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return full
}
