package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/test/daemon"
)

// The manual page is made here, so that what makes it is in no product. After a
// change of a command: go test ./client/holdfast -run TestManPage -update
var update = flag.Bool("update", false, "write the manual page anew")

const manPage = "../../packaging/man/holdfast.1"

// TestManPage holds holdfast(1) to the commands as they are.
func TestManPage(t *testing.T) {
	page := renderManPage((&app{}).commands())
	if *update {
		check(t, os.WriteFile(manPage, page, 0o644))
	}
	got, err := os.ReadFile(manPage)
	check(t, err)
	if !bytes.Equal(got, page) {
		t.Error("packaging/man/holdfast.1 is not what the commands say: run this test with -update")
	}
}

// manWriter writes one manual page, in man(7).
type manWriter struct{ bytes.Buffer }

func (m *manWriter) line(format string, args ...any) {
	fmt.Fprintf(&m.Buffer, format+"\n", args...)
}

// text writes paragraphs as they are in a help text.
func (m *manWriter) text(text string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			m.line(".PP")
		}
		for _, line := range strings.Split(paragraph, "\n") {
			m.line("%s", roff(line))
		}
	}
}

// roff protects what would be a request or another character to troff.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", `\&...`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

func renderManPage(root *cobra.Command) []byte {
	var m manWriter
	m.line(`.\" Made from the commands by TestManPage in client/holdfast.`)
	m.line(".TH HOLDFAST 1")
	m.line(".SH NAME")
	m.line(`holdfast \- %s`, roff(root.Short))
	m.line(".SH SYNOPSIS")
	m.line(".B holdfast")
	m.line(`[\-\-socket PATH] COMMAND`)
	m.line(".SH DESCRIPTION")
	description, _, _ := strings.Cut(root.Long, "\n\nExit codes:")
	m.text(description)
	m.line(".SH COMMANDS")
	m.commands(root)
	m.line(".SH OPTIONS OF EVERY COMMAND")
	m.options(root.PersistentFlags())
	m.epilogue()
	return m.Bytes()
}

// commands writes every command that does something.
func (m *manWriter) commands(parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.HasSubCommands() {
			m.commands(c)
			continue
		}
		if !c.IsAvailableCommand() {
			continue
		}
		m.line(".SS %s", roff(strings.TrimSuffix(c.UseLine(), " [flags]")))
		text := c.Long
		if text == "" {
			text = strings.ToUpper(c.Short[:1]) + c.Short[1:] + "."
		}
		m.text(text)
		m.options(c.LocalFlags())
		m.line(".PP")
		m.line("Example:")
		m.line(".PP")
		m.line(".EX")
		for _, line := range strings.Split(c.Example, "\n") {
			m.line("%s", roff(line))
		}
		m.line(".EE")
	}
}

func (m *manWriter) options(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, usage := pflag.UnquoteUsage(f)
		m.line(".TP")
		m.line(`\fB%s\fR \fI%s\fR`, roff(name), roff(value))
		m.line("%s", roff(usage))
	})
}

// epilogue writes what no single command says.
func (m *manWriter) epilogue() {
	m.line(".SH EXIT STATUS")
	for _, e := range []struct {
		code int
		text string
	}{
		{exitDone, "Done."},
		{exitFailed, "Failed."},
		{exitUsage, "The command line was not understood."},
		{exitUnreachable, "There is no agent to ask."},
		{exitDenied, "The agent's policy denies it."},
		{exitPerson, "A user has to act: a PIN, a touch or a confirmation."},
	} {
		m.line(".TP")
		m.line("%d", e.code)
		m.line("%s", e.text)
	}
	m.line(".SH ENVIRONMENT")
	m.line(".TP")
	m.line(".B HOLDFAST_SOCKET")
	m.line("The agent's socket, when \\-\\-socket is not given.")
	m.line(".TP")
	m.line(".B XDG_RUNTIME_DIR")
	m.line("Where the user's agent is looked for: holdfast/agent.sock below it.")
	m.line(".SH FILES")
	m.line(".TP")
	m.line(".I /run/holdfast/agent.sock")
	m.line("The socket of the machine's agent, which is used when the user has none.")
	m.line(".SH SEE ALSO")
	m.line(".BR holdfast\\-agent (8)")
}

// TestAgentManPage holds holdfast-agent(8) to the agent's own help.
func TestAgentManPage(t *testing.T) {
	page, err := os.ReadFile("../../packaging/man/holdfast-agent.8")
	check(t, err)
	help, err := exec.Command(daemon.Program(t, daemon.AgentProgram), "--help").CombinedOutput()
	check(t, err)
	flags := regexp.MustCompile(`(?m)^  --([a-z-]+)`).FindAllSubmatch(help, -1)
	if len(flags) < 8 {
		t.Fatalf("%d flags found in %q", len(flags), help)
	}
	for _, f := range flags {
		if option := `\fB\-\-` + strings.ReplaceAll(string(f[1]), "-", `\-`) + `\fR`; !bytes.Contains(page, []byte("\n"+option)) {
			t.Errorf("holdfast-agent(8) does not describe --%s", f[1])
		}
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	daemon.Remove()
	os.Exit(code)
}
