package systemd_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// installed copies units to a directory of their own and lets them start
// programs that exist. edit may change the text.
func installed(t *testing.T, directory string, edit func(string) string) []string {
	t.Helper()
	to := t.TempDir()
	for _, program := range []string{"holdfast", "holdfast-agent", "holdfast-broker"} {
		if err := os.WriteFile(filepath.Join(to, program), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var copies []string
	for _, file := range units(t, directory) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		changed := edit(strings.ReplaceAll(string(text), "/usr/bin/holdfast", filepath.Join(to, "holdfast")))
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

// exposure runs the judgement of systemd-analyze on one service with a limit,
// which it wants in tenths: 10 is an exposure of 1.0.
func exposure(t *testing.T, units []string, service, limit string) error {
	t.Helper()
	i := slices.IndexFunc(units, func(u string) bool { return filepath.Base(u) == service })
	cmd := exec.Command(tool(t, "systemd-analyze"), "security", "--offline=true", "--threshold="+limit, units[i])
	out, err := cmd.CombinedOutput()
	if last := bytes.LastIndex(out, []byte("Overall")); last >= 0 {
		t.Logf("%s", out[last:])
	}
	return err
}

// The key holder is closest; what talks to clusters has a network besides, and
// what renews the machine's certificates is root without a capability.
func TestExposure(t *testing.T) {
	for service, c := range map[string]struct{ limit, line, instead string }{
		"holdfast-agent.service":  {"10", "PrivateNetwork=yes\n", ""},
		"holdfast-broker.service": {"15", "CapabilityBoundingSet=\n", ""},
		"holdfast-renew.service":  {"16", "CapabilityBoundingSet=\n", ""},
	} {
		if err := exposure(t, installed(t, "system", same), service, c.limit); err != nil {
			t.Errorf("%s is over %s tenths: %v", service, c.limit, err)
		}
		open := func(text string) string { return strings.Replace(text, c.line, c.instead, 1) }
		if exposure(t, installed(t, "system", open), service, c.limit) == nil {
			t.Errorf("%s without %q passed", service, c.line)
		}
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

// TestSystemUnits checks the settings that the exposure score ignores or weighs the
// wrong way. Without them a daemon could not identify its callers, reach its device or
// its clusters, or keep its files to itself.
func TestSystemUnits(t *testing.T) {
	for file, c := range map[string]struct {
		want   map[string]string
		absent []string
	}{
		"holdfast-agent.service": {map[string]string{
			"Type": "notify", "User": "holdfast", "SupplementaryGroups": "tss", "DevicePolicy": "closed",
			"DeviceAllow": "/dev/tpmrm0 rw", "RestrictAddressFamilies": "AF_UNIX", "PrivateNetwork": "yes",
			"StateDirectory": "holdfast", "StateDirectoryMode": "0700", "CapabilityBoundingSet": "", "WatchdogSec": "30", "NoExecPaths": "/",
			"Sockets": "holdfast-agent.socket holdfast-agent-admin.socket", "Requires": "holdfast-agent.socket holdfast-agent-admin.socket",
		}, []string{"PrivateUsers", "PrivateDevices", "ProtectProc", "DynamicUser", "RuntimeDirectory"}},
		"holdfast-broker.service": {map[string]string{
			"Type": "notify", "User": "holdfast-broker", "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
			"StateDirectory": "holdfast-broker", "StateDirectoryMode": "0700", "CapabilityBoundingSet": "", "AmbientCapabilities": "",
			"WatchdogSec": "30", "Sockets": "holdfast-broker.socket", "Requires": "holdfast-broker.socket", "PrivateDevices": "yes",
			"FileDescriptorStoreMax": "128",
		}, []string{"PrivateUsers", "ProtectProc", "ProcSubset", "DynamicUser", "RuntimeDirectory", "SupplementaryGroups", "PrivateNetwork"}},
		"holdfast-broker-loopback.socket": {map[string]string{
			"ListenStream": "0.0.0.0:8443", "BindToDevice": "lo", "FileDescriptorName": "loopback", "Service": "holdfast-broker.service",
		}, nil},
		"holdfast-renew.service": {map[string]string{
			"Type": "oneshot", "User": "root", "CapabilityBoundingSet": "", "Environment": "HOLDFAST_SOCKET=/run/holdfast/admin.sock",
			"ExecStart": "/usr/bin/holdfast renew --due --system --within 11m", "TimeoutStartSec": "infinity",
		}, []string{"PrivateUsers", "PrivateNetwork", "WatchdogSec"}},
	} {
		check(t, filepath.Join("system", file), c.want, c.absent)
	}
}

// check holds a unit to the values of some keys, and to the absence of others.
func check(t *testing.T, file string, want map[string]string, absent []string) {
	t.Helper()
	got := settings(t, file)
	for key, value := range want {
		if values := got[key]; len(values) != 1 || values[0] != value {
			t.Errorf("%s: %s: got %q, want %q once", file, key, values, value)
		}
	}
	for _, key := range absent {
		if values := got[key]; values != nil {
			t.Errorf("%s: %s is set to %q", file, key, values)
		}
	}
}

// The settings that a user's manager ignores, or that stop the service there with
// status 218, are not in the user units.
func TestUserUnits(t *testing.T) {
	for _, file := range []string{"holdfast-agent.service", "holdfast-broker.service", "holdfast-renew.service"} {
		check(t, filepath.Join("user", file), map[string]string{
			"NoNewPrivileges": "yes", "MemoryDenyWriteExecute": "yes", "LockPersonality": "yes", "RestrictSUIDSGID": "yes", "LimitCORE": "0",
		}, []string{
			"User", "Group", "SupplementaryGroups", "PrivateUsers", "PrivateDevices", "PrivateNetwork", "PrivateTmp", "CapabilityBoundingSet",
			"ProtectClock", "ProtectHome", "ProtectSystem", "ProtectProc", "ProtectKernelModules", "ProtectKernelLogs", "DevicePolicy", "DeviceAllow",
			"StateDirectory",
		})
	}
}

// Every moment has a run that looks ahead to it: the timer is exact and comes sooner
// than a run's view ends. Renewals that fell due while the machine was off are made up for.
func TestRenewTimers(t *testing.T) {
	for _, manager := range []string{"system", "user"} {
		start := settings(t, filepath.Join(manager, "holdfast-renew.service"))["ExecStart"]
		if len(start) != 1 || !strings.HasSuffix(start[0], " --within 11m") {
			t.Errorf("%s: the renewal starts as %q, and the timer counts on 11 minutes", manager, start)
		}
		check(t, filepath.Join(manager, "holdfast-renew.timer"), map[string]string{
			"OnCalendar": "*:0/10", "AccuracySec": "1s", "Persistent": "yes", "WantedBy": "timers.target",
		}, []string{"RandomizedDelaySec", "WakeSystem", "Unit"})
	}
}

// The daemons take their sockets by name, path and mode; here is where they come
// from.
func TestSockets(t *testing.T) {
	tests := []struct{ file, service, name, path, mode, directory string }{
		{"system/holdfast-agent.socket", "agent", "agent", "/run/holdfast/agent.sock", "0666", "0755"},
		{"system/holdfast-agent-admin.socket", "agent", "admin", "/run/holdfast/admin.sock", "0600", "0755"},
		{"user/holdfast-agent.socket", "agent", "agent", "%t/holdfast/agent.sock", "0600", "0700"},
		{"system/holdfast-broker.socket", "broker", "broker", "/run/holdfast/broker.sock", "0666", "0755"},
		{"user/holdfast-broker.socket", "broker", "broker", "%t/holdfast/broker.sock", "0600", "0700"},
	}
	for _, test := range tests {
		check(t, test.file, map[string]string{
			"FileDescriptorName": test.name, "ListenStream": test.path, "SocketMode": test.mode, "DirectoryMode": test.directory,
		}, nil)
		service := settings(t, filepath.Dir(test.file)+"/holdfast-"+test.service+".service")
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
	for _, user := range []string{"holdfast", "holdfast-broker"} {
		line := regexp.MustCompile(`(?m)^` + user + `:.*:/usr/sbin/nologin$`)
		if err != nil || !line.Match(passwd) {
			t.Errorf("passwd has no %s without a shell: %v\n%s", user, err, passwd)
		}
	}
	group, err := os.ReadFile(filepath.Join(root, "etc/group"))
	if err != nil || !strings.Contains(string(group), "tss:x:") {
		t.Errorf("group: %v\n%s", err, group)
	}
	for _, dir := range []string{"run/holdfast", "etc/holdfast", "etc/holdfast/profiles"} {
		info, err := os.Stat(filepath.Join(root, dir))
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v, want mode 0755", dir, info, err)
		}
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
