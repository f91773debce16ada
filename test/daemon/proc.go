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

// Usage reads what the daemon holds from /proc.
func (p *process) Usage() Usage {
	p.tb.Helper()
	fds, err := os.ReadDir(p.proc("fd"))
	if err != nil {
		p.tb.Fatalf("%v", err)
	}
	return Usage{Descriptors: len(fds), Threads: p.Status("Threads"), RSS: p.Status("VmRSS") << 10}
}

// Status returns a number of /proc/PID/status.
func (p *process) Status(name string) int {
	p.tb.Helper()
	text, err := os.ReadFile(p.proc("status"))
	if err != nil {
		p.tb.Fatalf("%v", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err == nil {
				return n
			}
		}
	}
	p.tb.Fatalf("/proc/%d/status has no number %s", p.Pid(), name)
	return 0
}

// Sockets returns the inodes of the sockets that the daemon has open.
func (p *process) Sockets() []string {
	p.tb.Helper()
	links, err := filepath.Glob(p.proc("fd/*"))
	if err != nil {
		p.tb.Fatalf("%v", err)
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

func (p *process) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", p.Pid(), name) }
