package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func tree(t *testing.T, visit func(*cobra.Command)) {
	t.Helper()
	a := &app{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		visit(c)
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				walk(sub)
			}
		}
	}
	walk(a.commands())
}

// Every help text ends in an example, and the example is a command line that
// is understood.
func TestExamples(t *testing.T) {
	seen := 0
	tree(t, func(c *cobra.Command) {
		seen++
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		help := command{}.run(args...)
		help.want(t, 0, "Usage:\n  "+c.CommandPath())
		_, example, ok := strings.Cut(help.stdout, "\nExample:\n")
		lines := strings.Split(strings.TrimSpace(example), "\n")
		if !ok || c.Short == "" || example == "" {
			t.Errorf("%s: no example at the end of its help", c.CommandPath())
		}
		for _, line := range lines {
			if err := understood(t, strings.TrimSpace(line)); err != "" {
				t.Errorf("%s: example %q: %s", c.CommandPath(), line, err)
			}
		}
	})
	if seen < 20 {
		t.Fatalf("%d commands seen: the walk is wrong", seen)
	}
}

// understood parses a command line without running it.
func understood(t *testing.T, line string) string {
	t.Helper()
	line, _, _ = strings.Cut(line, " <")
	line, _, _ = strings.Cut(line, " >")
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "holdfast" {
		return "it is no holdfast command"
	}
	found, args, err := (&app{}).commands().Find(words[1:])
	if err == nil {
		err = found.ParseFlags(args)
	}
	if err == nil {
		err = found.ValidateArgs(found.Flags().Args())
	}
	if err == nil {
		err = found.ValidateRequiredFlags()
	}
	if err == nil && found.PreRunE != nil {
		err = found.PreRunE(found, found.Flags().Args())
	}
	switch {
	case err != nil:
		return err.Error()
	case found.HasSubCommands():
		return "it only leads to other commands"
	}
	return ""
}

// Nothing is offered that the agent refuses: no help text, completion or error names a
// purpose that no key can have, and no command binds keys to servers.
func TestNothingPlannedIsOffered(t *testing.T) {
	planned := []string{"service-account\b", "client-assertion", "aws-roles-anywhere"}
	for _, args := range []string{"key create --help", "key adopt --help", "__complete key create x --purpose ", "key create x --purpose jwt", "key create x"} {
		got := command{}.run(strings.Split(args, " ")...)
		for _, purpose := range planned {
			if regexp.MustCompile(purpose).MatchString(got.stdout + got.stderr) {
				t.Errorf("%s: offers %s: %+v", args, purpose, got)
			}
		}
	}
	command{}.run("key", "bind", "alice").want(t, exitUsage, `has no command "bind"`)
}

// A slip of one or two letters is recognised, in commands, options and values.
func TestDidYouMean(t *testing.T) {
	for args, want := range map[string]string{
		"statsu":                           "did you mean status?",
		"key creat x":                      "did you mean create?",
		"key create x --purpos y":          "did you mean --purpose?",
		"status --jsn":                     "did you mean --json?",
		"key list --sockt x":               "did you mean --socket?",
		"key create x --purpose tls-clint": "did you mean tls-client?",
		"key create x --purpose tls-client --algorithm es256":     "did you mean ES256?",
		"policy check --uid 1 --key x --operation sign-tls-clent": "did you mean sign-tls-client?",
		"key create x --purpose tls-client --pin-policy neber":    "did you mean never?",
	} {
		command{}.run(strings.Fields(args)...).want(t, exitUsage, "hint: "+want)
	}
	if got := (command{}).run("nonsense"); strings.Contains(got.stderr, "did you mean") || !strings.Contains(got.stderr, "--help") {
		t.Errorf("got %+v", got)
	}
}

// A key's name is completed from the caller's own keys, and only from those.
func TestKeyMeant(t *testing.T) {
	_, alice := withAlice(t)
	alice.run("key", "show", "alcie").want(t, exitDenied, "did you mean alice?")
	if got := alice.run("key", "show", "other"); strings.Contains(got.stderr, "did you mean") {
		t.Errorf("got %+v", got)
	}
}

// No secret is ever an argument.
func TestNoSecretInArguments(t *testing.T) {
	tree(t, func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			secret := strings.Contains(f.Name, "pin") || strings.Contains(f.Name, "puk") || strings.Contains(f.Name, "management")
			harmless := strings.HasSuffix(f.Name, "-fd") && f.Value.Type() == "int" || strings.HasSuffix(f.Name, "-policy") || f.Value.Type() == "bool"
			if secret && !harmless {
				t.Errorf("%s --%s takes a value", c.CommandPath(), f.Name)
			}
		})
	})
}

// Commands that list or show have output for programs too.
func TestJSONEverywhere(t *testing.T) {
	for _, path := range []string{
		"key list", "key show", "key create", "key adopt", "certificate show", "certificate install", "status", "doctor",
		"key delete", "lock", "unlock", "enroll kubernetes", "renew", "certificate renew", "piv setup", "piv change-pin", "piv change-puk", "piv unblock",
		"kubeconfig add", "kubeconfig remove",
		"piv list", "policy check", "audit tail", "audit verify", "version", "kubeconfig list", "kubeconfig check",
	} {
		c, _, err := (&app{}).commands().Find(strings.Fields(path))
		if err != nil || c.Flags().Lookup("json") == nil {
			t.Errorf("holdfast %s has no --json (%v)", path, err)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		command{}.run("completion", shell).want(t, 0, "__complete", "holdfast")
	}
	_, alice := withAlice(t)
	alice.run("__complete", "key", "show", "").want(t, 0, "alice\ttls-client")
	for line, want := range map[string]string{
		"key create x --purpose": "tls-client\n", "key adopt x - --purpose": "tls-server\n",
		"key create x --algorithm": "ES384\n", "policy check --operation": "sign-tls-server\n",
	} {
		command{}.run(append(append([]string{"__complete"}, strings.Fields(line)...), "")...).want(t, 0, want)
	}
}

func TestVersion(t *testing.T) {
	command{}.run("version").want(t, 0, "holdfast ", "go1.", "backends")
	command{}.run("--version").want(t, 0, "holdfast ", "go1.", "backends")
	command{}.run("version", "--json").want(t, 0, `"go": "go1.`, `"backends": []`)
}
