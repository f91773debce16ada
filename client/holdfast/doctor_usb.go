package main

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// yubico is the maker's number of YubiKeys on the USB.
const yubico = "1050"

// anyFile reports whether a file of a pattern holds text and nothing else.
func (m machine) anyFile(pattern, text string) bool {
	files, _ := filepath.Glob(m.path(pattern)) // the pattern is one of ours
	return slices.ContainsFunc(files, func(name string) bool {
		data, err := os.ReadFile(name)
		return err == nil && strings.TrimSpace(string(data)) == text
	})
}

// usbKey reports whether a YubiKey is plugged in, used by any program or none.
func (m machine) usbKey() bool { return m.anyFile("/sys/bus/usb/devices/*/idVendor", yubico) }

// scdaemon reports whether gpg's daemon for cards runs, for any user.
func (m machine) scdaemon() bool { return m.anyFile("/proc/[0-9]*/comm", "scdaemon") }

// shareHint says how gpg lets other programs use a card too. By itself its scdaemon
// takes readers past pcscd, and cards for itself alone.
func (m machine) shareHint() string {
	file := filepath.Join(cmp.Or(os.Getenv("GNUPGHOME"), "~/.gnupg"), "scdaemon.conf")
	missing := m.unshared()
	if len(missing) == 0 {
		return "gpgconf --kill scdaemon has it read " + file + " again, which lets other programs use the card"
	}
	return "put " + strings.Join(missing, " and ") + " into " + file + ", each on a line, then: gpgconf --kill scdaemon"
}

// unshared lists the options that scdaemon.conf lacks.
func (m machine) unshared() []string {
	home, _ := os.UserHomeDir() // without one there is no such file
	file := filepath.Join(cmp.Or(os.Getenv("GNUPGHOME"), filepath.Join(home, ".gnupg")), "scdaemon.conf")
	data, _ := os.ReadFile(m.path(file)) // read as empty
	var lines []string
	for line := range strings.Lines(string(data)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return slices.DeleteFunc([]string{"disable-ccid", "pcsc-shared"}, func(option string) bool { return slices.Contains(lines, option) })
}
