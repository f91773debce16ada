package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/agent/config"
)

// The agent rejects a child program or roots in a directory that another user can
// write.
func TestCardsTrustNoOpenDirectory(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	program, roots, safe := filepath.Join(open, "program"), filepath.Join(open, "roots"), filepath.Join(t.TempDir(), "program")
	err := errors.Join(os.Mkdir(open, 0o755), os.Chmod(open, 0o777), os.WriteFile(program, nil, 0o755), os.WriteFile(roots, nil, 0o644), os.WriteFile(safe, nil, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]config.Config{
		"piv-program: " + open: {PIVProgram: program},
		"piv-roots: " + open:   {PIVProgram: safe, PIVRoots: roots},
	} {
		p, err := openPIV(&c, slog.Default())
		if err == nil {
			p.Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "not sticky") {
			t.Errorf("got %v, want an error that begins with %q", err, want)
		}
	}
}
