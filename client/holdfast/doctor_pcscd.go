package main

import (
	"path/filepath"

	"holdfast/internal/fault"
)

// polkitHint says how to let the agent use cards. Without rules polkit allows only
// the user of the machine's own seat.
func polkitHint(m machine, mode string) string {
	switch {
	case mode != "system":
		return "log in at the machine itself rather than by ssh, or allow your user org.debian.pcsc-lite.access_pcsc and .access_card in /etc/polkit-1/rules.d"
	case m.exists("/usr/share/polkit-1/rules.d/holdfast.rules"):
		return "the rule is there: does the agent run as the user holdfast? systemctl restart polkit reads the rules again"
	}
	return "/usr/share/polkit-1/rules.d/holdfast.rules of the holdfast package lets the agent in: install it"
}

// pcscd reports a fault of pcscd on this machine. It returns false when there is none.
func (f *findings) pcscd(m machine, report func(subject, message, hint string)) bool {
	message, hint := m.lackOfPCSCD()
	if message != "" {
		report("pcscd", message, hint)
	}
	return message != ""
}

// lackOfPCSCD checks that pcscd is installed and running. The message is empty when
// nothing is wrong.
func (m machine) lackOfPCSCD() (message, hint string) {
	const socket = "/run/pcscd/pcscd.comm"
	switch {
	case m.lacksPCSCLibrary():
		return "libpcsclite.so.1, which holdfast-piv is linked to, is not installed",
			"apt install libpcsclite1 pcscd (dnf install pcsc-lite-libs pcsc-lite pcsc-lite-ccid; pacman -S pcsclite ccid), then start the agent again"
	case !m.exists("/usr/sbin/pcscd") && !m.exists("/usr/bin/pcscd"):
		return "pcscd, which speaks to card readers, is not installed",
			"apt install pcscd (dnf install pcsc-lite pcsc-lite-ccid; pacman -S pcsclite ccid), then: systemctl enable --now pcscd.socket"
	case !m.exists(socket):
		return "pcscd is installed and does not run: there is no " + socket, "systemctl enable --now pcscd.socket"
	}
	return "", ""
}

// lacksPCSCLibrary reports whether the library is in none of the usual places.
func (m machine) lacksPCSCLibrary() bool {
	for _, pattern := range []string{"/usr/lib*/libpcsclite.so.1", "/usr/lib/*/libpcsclite.so.1", "/lib*/libpcsclite.so.1", "/lib/*/libpcsclite.so.1", "/usr/local/lib*/libpcsclite.so.1"} {
		if found, _ := filepath.Glob(m.path(pattern)); len(found) > 0 { // the pattern is one of ours
			return false
		}
	}
	return true
}

// aboutPCSCD replaces the agent's error about pcscd with what this machine shows: the
// agent cannot see whether pcscd is installed.
func (m machine) aboutPCSCD(err error) error {
	e, fromAgent := fault.AsError(err)
	if !fromAgent || e.Next.Do != fault.StartPCSCD && !(e.Kind == fault.DeviceFailed && m.lacksPCSCLibrary()) {
		return err
	}
	if message, hint := m.lackOfPCSCD(); message != "" {
		return failf(hint, "%s", message)
	}
	return err
}
