package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProgramBesideTheAgent(t *testing.T) {
	root := t.TempDir()
	agent := filepath.Join(root, "bin", "holdfast-agent")
	if got := besideProgram(agent); got != "" {
		t.Errorf("nothing is installed: got %q", got)
	}
	packaged := writeFile(t, filepath.Join(root, "libexec", "holdfast", "holdfast-piv"), "")
	if got := besideProgram(agent); got != packaged {
		t.Errorf("a packaged one: got %q, want %q", got, packaged)
	}
	near := filepath.Join(root, "bin", "holdfast-piv")
	if err := os.MkdirAll(near, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := besideProgram(agent); got != packaged {
		t.Errorf("a directory of that name: got %q, want %q", got, packaged)
	}
	if err := os.Remove(near); err != nil {
		t.Fatal(err)
	}
	writeFile(t, near, "")
	if got := besideProgram(agent); got != near {
		t.Errorf("both: got %q, want the nearer", got)
	}
}

func TestCardsAreUsedWhereTheyCanBe(t *testing.T) {
	env := home(t)
	if c := mustResolve(t, env); c.PIV || c.PIVProgram != "" {
		t.Errorf("no program: got piv %t, program %q", c.PIV, c.PIVProgram)
	}
	file := writeFile(t, t.TempDir()+"/agent.yaml", "piv-program: /opt/holdfast-piv\n")
	if c := mustResolve(t, env, "--config", file); !c.PIV || c.Origin("piv") != "default" {
		t.Errorf("a program: got piv %t from %q", c.PIV, c.Origin("piv"))
	}
	if c := mustResolve(t, env, "--config", file, "--piv", "off"); c.PIV {
		t.Error("off: cards are used")
	}
	_, err := resolve(t, env, "--piv", "on")
	if err == nil || !strings.Contains(err.Error(), "--piv: piv: holdfast-piv is not installed") {
		t.Errorf("on without a program: got %v", err)
	}
}

// The machine's agent reaches no user's terminal or desktop.
func TestPromptsOfTheMachine(t *testing.T) {
	if got := mustResolve(t, nil, "--system").Prompt; got != "off" {
		t.Errorf("got prompt %q, want off", got)
	}
	file := writeFile(t, t.TempDir()+"/agent.yaml", "remember-pins: secret-service\n")
	_, err := resolve(t, nil, "--system", "--config", file)
	if err == nil || !strings.Contains(err.Error(), "remember-pins: the machine's agent") {
		t.Errorf("PINs remembered by the machine: got %v", err)
	}
}
