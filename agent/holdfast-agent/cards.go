package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"holdfast/agent/config"
	"holdfast/internal/guard"
	"holdfast/piv"
	"holdfast/piv/attestation"
)

// openPIV opens the backend for cards. Its child sees every PIN, and the roots
// decide which cards the agent trusts: neither may be a file that another user can
// write or replace.
func openPIV(c *config.Config, log *slog.Logger) (*piv.PIV, error) {
	if err := guard.CheckProgram(c.PIVProgram); err != nil {
		return nil, fmt.Errorf("piv-program: %w", err)
	}
	roots := attestation.Genuine()
	if c.PIVRoots != "" {
		var more []byte
		err := guard.CheckProgram(c.PIVRoots)
		if err == nil {
			more, err = readTrusted(c.PIVRoots, attestation.MaxRootsFile)
		}
		if err == nil {
			roots, err = roots.With(more)
		}
		if err != nil {
			return nil, fmt.Errorf("piv-roots: %w", err)
		}
	}
	return piv.Open(piv.Config{Program: c.PIVProgram, Roots: roots, Log: log})
}

// readTrusted reads a file that no other user can write, up to one byte more than
// most.
func readTrusted(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := guard.CheckOpen(f); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, most+1))
}
