package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"holdfast/client"
	"holdfast/internal/dial"
	"holdfast/internal/peer"
)

// machine is the file tree that doctor looks at. Its zero value is this machine; tests
// use another tree.
type machine struct{ root string }

func (m machine) path(elements ...string) string {
	return filepath.Join(append([]string{"/", m.root}, elements...)...)
}

func (m machine) exists(path string) bool {
	_, err := os.Stat(m.path(path))
	return err == nil
}

// runtimeDirectory checks the directory of the socket of a user's agent.
func (f *findings) runtimeDirectory(m machine) {
	const subject = "runtime directory"
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		f.note(subject, "XDG_RUNTIME_DIR is not set, so an agent is looked for at "+strings.Join(client.Sockets(), " and "),
			"log in through PAM (not su or sudo), or set HOLDFAST_SOCKET")
		return
	}
	info, err := os.Stat(m.path(dir))
	if err != nil {
		f.bad(subject, err.Error(), "log in again: the login manager makes it")
		return
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && int(stat.Uid) != os.Getuid():
		f.bad(subject, fmt.Sprintf("%s belongs to uid %d, not to you", dir, stat.Uid), "unset XDG_RUNTIME_DIR, which another user's session has left behind")
	case info.Mode().Perm()&0o077 != 0:
		f.bad(subject, fmt.Sprintf("%s is open to others (mode %04o)", dir, info.Mode().Perm()), "log in again: the login manager makes one that is yours alone; or set XDG_RUNTIME_DIR to such a directory")
	default:
		f.ok(subject, "%s", dir)
	}
}

// tpm checks the TPM with the rights of this user. An agent that runs as another user
// may have more.
func (f *findings) tpm(m machine, agentAnswers bool) {
	const subject, device = "tpm", "/dev/tpmrm0"
	report := f.bad
	if agentAnswers {
		report = f.note
	}
	version, _ := os.ReadFile(m.path("/sys/class/tpm/tpm0/tpm_version_major")) // read as no TPM
	file, err := os.OpenFile(m.path(device), os.O_RDWR, 0)
	switch {
	case err == nil:
		file.Close()
		f.ok(subject, "you may open %s", device)
	case errors.Is(err, syscall.EBUSY):
		report(subject, device+" is in use", "another program holds it: fuser -v "+device)
	case errors.Is(err, fs.ErrPermission):
		reason, hint := inGroup(m, device)
		report(subject, "you may not open "+device+reason, hint)
	case strings.TrimSpace(string(version)) == "1":
		report(subject, "the TPM is a version 1.2, and holdfast needs 2.0", "look for TPM 2.0 or fTPM in the firmware's setup")
	case m.exists("/dev/tpm0"):
		report(subject, "there is /dev/tpm0 and no "+device, "the kernel lacks its TPM resource manager: use a newer kernel")
	case errors.Is(err, fs.ErrNotExist):
		report(subject, "there is no "+device, "switch the TPM on in the firmware's setup (TPM 2.0, PTT or fTPM), or use a software TPM for tests")
	default:
		report(subject, err.Error(), "the kernel's log says more: dmesg | grep -i tpm")
	}
}

// inGroup says which group may open the device, and what this user can do about it.
func inGroup(m machine, device string) (reason, hint string) {
	info, err := os.Stat(m.path(device))
	if err != nil {
		return "", "holdfast status shows whether the machine's agent uses it"
	}
	gid := int(info.Sys().(*syscall.Stat_t).Gid) // always a Stat_t on Linux
	groups, err := os.Getgroups()
	return memberOf(gid, err != nil || slices.Contains(groups, gid), info.Mode())
}

// memberOf is inGroup for a device of a group. It never says to join the group root.
func memberOf(gid int, member bool, mode fs.FileMode) (reason, hint string) {
	name := strconv.Itoa(gid)
	if g, err := user.LookupGroupId(name); err == nil {
		name = g.Name
	}
	const machines = "use the machine's agent (the holdfast package sets it up)"
	switch {
	case gid == 0 || mode.Perm()&0o060 != 0o060:
		return fmt.Sprintf(": no group may (it is of group %s, mode %04o)", name, mode.Perm()), machines + ", or install tpm-udev, which gives the device to the group tss"
	case member:
		return " although you are in group " + name, machines + "; a sandbox or another security policy may keep the device from you"
	}
	return ": you are not in group " + name, machines + ", or join the group " + name + " and log in again"
}

// swtpm mentions the software TPM, which is for tests.
func (f *findings) swtpm() {
	if path, err := exec.LookPath("swtpm"); err == nil {
		f.ok("swtpm", "%s is there for tests: holdfast-agent --device swtpm:SOCKET", path)
	}
}

// units reports the units that would start an agent, for when none answers. They start
// none at a socket that the caller named.
func (f *findings) units(m machine, named bool) {
	if named {
		f.note("unit", "HOLDFAST_SOCKET names the socket, where no unit of the holdfast package listens",
			"start an agent there, or unset HOLDFAST_SOCKET to use the agent at "+dial.Agent().Default())
		return
	}
	home, _ := os.UserHomeDir() // without one there are no units of its own
	places := []struct{ dir, start string }{
		{filepath.Join(home, ".config/systemd/user"), "systemctl --user enable --now"},
		{"/etc/systemd/user", "systemctl --user enable --now"},
		{"/usr/lib/systemd/user", "systemctl --user enable --now"},
		{"/etc/systemd/system", "systemctl enable --now"},
		{"/usr/lib/systemd/system", "systemctl enable --now"},
	}
	none := true
	for _, p := range places {
		for _, unit := range []string{"holdfast-agent.socket", "holdfast-agent.service"} {
			if m.exists(filepath.Join(p.dir, unit)) {
				f.note("unit", filepath.Join(p.dir, unit)+" is installed", p.start+" "+unit)
				none = false
				break
			}
		}
	}
	if none {
		f.bad("unit", "no unit for an agent is installed", "install the holdfast package, or start one by hand: holdfast-agent --help")
	}
}

// kernel checks how well an agent can identify its callers.
func (f *findings) kernel() {
	has, err := peer.HasPeerPidfd()
	switch {
	case err != nil:
		f.note("kernel", "SO_PEERPIDFD: "+err.Error(), "")
	case has:
		f.ok("kernel", "it names callers by pidfd (SO_PEERPIDFD)")
	default:
		f.note("kernel", "it is older than 6.5 and has no SO_PEERPIDFD", "rules by unit need accept-racy-units: true in the policy")
	}
}
