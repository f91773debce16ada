package config

import (
	"os"
	"path/filepath"
)

// fillInPIV uses cards where the agent's child for them is installed. It is not
// looked for in PATH: whoever sets that would choose who sees the PINs.
func (c *Config) fillInPIV() error {
	if self, err := os.Executable(); err == nil && c.PIVProgram == "" {
		c.PIVProgram = beside(self)
	}
	if c.PIVProgram == "" {
		return c.fallback("piv", "off")
	}
	return c.fallback("piv", "on")
}

// beside returns the path of holdfast-piv in the directory of the agent's own
// program, or where packages put it, or "".
func beside(agent string) string {
	directory := filepath.Dir(agent)
	for _, path := range []string{
		filepath.Join(directory, "holdfast-piv"),
		filepath.Join(directory, "..", "libexec", "holdfast", "holdfast-piv"),
	} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
