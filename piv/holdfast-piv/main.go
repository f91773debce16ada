// Command holdfast-piv is the child of holdfast-agent that speaks to PIV cards. It
// owns PC/SC, whose calls can hang and whose libraries can crash, and only it keeps a
// card's PIN. The agent can kill it at any time.
//
// It takes no arguments but --version, and only the agent uses it. It reads requests
// of package piv/wire on standard input, writes replies to standard output and log
// messages to standard error, and ends with its standard input.
//
// It wipes its copies of a PIN, except those that the decoding of a request leaves in
// memory until the memory is reused. It protects its memory from other processes of
// its user, and not from root.
//
// Start at package card, which does the work. The files here read requests and handle
// timeouts.
package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"

	"holdfast/internal/guard"
	"holdfast/piv/holdfast-piv/card"
	"holdfast/piv/holdfast-piv/vault"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run returns the exit code: 0 when the agent has ended or with --version, 1 after a
// failure, 2 for wrong arguments.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == "--version" {
		fmt.Fprintln(stdout, fullVersion())
		return 0
	}
	if len(args) > 0 {
		fmt.Fprintln(stderr, "holdfast-piv: error: this program takes no arguments")
		fmt.Fprintln(stderr, "holdfast-piv: hint: holdfast-agent starts it; see holdfast-agent(8)")
		return 2
	}
	if err := serve(stdin, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "holdfast-piv: error:", err)
		return 1
	}
	return 0
}

// serve drops the privileges that it does not need, and then answers requests.
func serve(stdin io.Reader, stdout, stderr io.Writer) error {
	runtime.LockOSThread() // the first three calls apply to this thread, or start with it
	if err := guard.HardenProcess(); err != nil {
		return err
	}
	if err := confine(); err != nil {
		return err
	}
	orphaned, err := watchParent()
	if err != nil {
		return err
	}
	v, err := vault.New()
	if err != nil {
		return err
	}
	defer v.Lock("")
	log := slog.New(slog.NewTextHandler(stderr, nil))
	s := &service{in: stdin, out: stdout, vault: v, card: card.New(v, log), orphaned: orphaned}
	return s.run()
}
