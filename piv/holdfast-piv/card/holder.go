package card

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// holder names who has the reader, as far as this user can tell: gpg's card
// daemon when one of this user runs, which keeps a card until it is told otherwise.
func holder() string {
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(comm)) != "scdaemon" {
			continue
		}
		if info, err := os.Stat(filepath.Dir(name)); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == os.Getuid() {
				return "scdaemon"
			}
		}
	}
	return "another program"
}
