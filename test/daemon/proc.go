package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Usage is what a process holds.
type Usage struct {
	Descriptors int
	Threads     int
	RSS         int // bytes
}

// Usage reads what the agent holds from /proc.
func (a *Agent) Usage() Usage {
	a.tb.Helper()
	fds, err := os.ReadDir(a.proc("fd"))
	if err != nil {
		a.tb.Fatalf("%v", err)
	}
	return Usage{Descriptors: len(fds), Threads: a.Status("Threads"), RSS: a.Status("VmRSS") << 10}
}

// Status returns a number of /proc/PID/status.
func (a *Agent) Status(name string) int {
	a.tb.Helper()
	text, err := os.ReadFile(a.proc("status"))
	if err != nil {
		a.tb.Fatalf("%v", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err == nil {
				return n
			}
		}
	}
	a.tb.Fatalf("/proc/%d/status has no number %s", a.Pid(), name)
	return 0
}

// Sockets returns the inodes of the sockets that the agent has open.
func (a *Agent) Sockets() []string {
	a.tb.Helper()
	links, err := filepath.Glob(a.proc("fd/*"))
	if err != nil {
		a.tb.Fatalf("%v", err)
	}
	var inodes []string
	for _, link := range links {
		target, _ := os.Readlink(link) // one may have been closed since
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes = append(inodes, strings.TrimSuffix(inode, "]"))
		}
	}
	return inodes
}

func (a *Agent) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", a.Pid(), name) }
