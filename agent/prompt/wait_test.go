package prompt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/test/role"
)

// eventually waits until ready does not fail.
func eventually(t *testing.T, ready func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for err := ready(); err != nil; err = ready() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// childOf returns the job that a caller has started, once it runs.
func childOf(t *testing.T, pid int32) int32 {
	t.Helper()
	var child int32
	eventually(t, func() error {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // each thread has its own
		if err != nil {
			return err
		}
		var text []byte
		for _, list := range lists {
			part, _ := os.ReadFile(list) // a thread that has ended has none
			text = append(text, part...)
		}
		if _, err := fmt.Sscan(string(text), &child); err != nil {
			return fmt.Errorf("the children of %d: %w", pid, err)
		}
		if p, err := look(child); err != nil || p.Name != "exe" { // before, it may be a try of package os
			return fmt.Errorf("the job is %q: %v", p.Name, err)
		}
		return nil
	})
	running(t, child)
	return child
}

// gone fails while there is a process.
func gone(pid int32) error {
	if p, err := look(pid); err == nil {
		return fmt.Errorf("process %d (%s) is still there", pid, p.Name)
	}
	return nil
}

// running waits until a process plays its role. While it becomes the program, it
// has the name already and no environment yet.
func running(t *testing.T, pid int32) {
	t.Helper()
	eventually(t, func() error {
		p, err := look(pid)
		if err != nil {
			return err
		}
		text, err := readStart(pid, "environ")
		if err != nil || !strings.Contains(string(text), role.Variable+"=") || p.Name != "caller" && p.Name != "exe" {
			return fmt.Errorf("process %d is %q: %v", pid, p.Name, err)
		}
		return nil
	})
}
