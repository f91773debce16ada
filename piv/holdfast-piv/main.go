// Command holdfast-piv is the child of holdfast-agent that speaks to PIV cards.
// It owns PC/SC, whose calls can hang and whose libraries can crash, and it is the
// one place where a card's PIN is kept. The agent kills it when it must.
//
// It takes no arguments but --version, and is of use to the agent alone: requests
// come in on standard input as package piv/wire has them, replies go out on
// standard output, and what is left to say goes to standard error. It ends with
// its standard input.
//
// A PIN is wiped where this program holds it. What the decoding of a request leaves
// behind in memory until that is used again is not: it protects the process from
// others of its user, and not from root.
//
// Package card does the work; the files here read requests and keep the time.
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

// run returns the exit code: 0 when the agent has gone or asked for the version,
// 1 when the work cannot go on, 2 when it was started wrongly.
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

// serve gives up what it does not need, and then answers requests.
func serve(stdin io.Reader, stdout, stderr io.Writer) error {
	runtime.LockOSThread() // the first three are about this thread, or begin with it
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
