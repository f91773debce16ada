package main

import (
	"strings"
	"testing"
)

// Errors about a command line are in this tool's words, and the hint
// leads to the help of the command.
func TestUsageTexts(t *testing.T) {
	for line, want := range map[string]string{
		"key create":                       "NAME is missing",
		"key create alice":                 "--purpose is missing",
		"key list extra":                   `unexpected argument "extra"`,
		"key adopt alice":                  "FILE is missing",
		"certificate install alice":        "FILE is missing",
		"certificate request alice --ip x": `--ip wants an IP address, not "x"`,
		"tls connect":                      "HOST:PORT is missing",
		"policy check --uid nosuchuser":    `--uid wants a uid or the name of a user of this machine, not "nosuchuser"`,
		"policy check --uid 4294967295":    `--uid wants a uid or the name of a user of this machine, not "4294967295"`,
		"policy check --operation status":  "--uid is missing",
		"policy check --gid a":             `--gid wants a number, or several with commas, not "a"`,
		"policy check --admin=maybe":       `--admin wants no value, not "maybe"`,
		"audit tail -n many":               `--lines wants a number, not "many"`,
		"audit tail -n":                    "-n needs a value",
		"status --socket":                  "--socket needs a value",
		"status --nonsense":                "there is no option --nonsense",
		"status -x":                        "there is no option -x",
		"status ---":                       `"---" is not an option`,
		"completion":                       "SHELL is missing",
		"completion ksh":                   `there is no completion for "ksh"`,
		"lock alice bob":                   `unexpected argument "bob"`,
	} {
		got := command{socket: "/nonexistent/agent.sock"}.run(strings.Fields(line)...)
		got.want(t, exitUsage, "holdfast: error: "+want+"\n", "\nholdfast: hint: ")
	}
}
