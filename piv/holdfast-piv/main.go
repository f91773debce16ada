// Command holdfast-piv is the child of holdfast-agent that speaks to PIV cards.
// It owns PC/SC, whose calls can hang and whose libraries can crash, and it is the
// one place where a card's PIN is kept. The agent kills it when it must.
//
// It takes no arguments but --version, and is of use to the agent alone: requests
// come in on standard input as package piv/wire has them, replies go out on
// standard output, and what is left to say goes to standard error. It ends with
// its standard input.
//
// Package card does the work; the files here read requests and keep the time.
package main

import (
	"fmt"
	"io"
	"os"

	"holdfast/agent/harden"
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
	if err := harden.Process(); err != nil {
		fmt.Fprintln(stderr, "holdfast-piv: error:", err)
		return 1
	}
	orphaned, err := watchParent()
	if err != nil {
		fmt.Fprintln(stderr, "holdfast-piv: error:", err)
		return 1
	}
	v, err := vault.New()
	if err != nil {
		fmt.Fprintln(stderr, "holdfast-piv: error:", err)
		return 1
	}
	defer v.Lock("")
	s := &service{in: stdin, out: stdout, vault: v, card: card.New(v), orphaned: orphaned}
	if err := s.run(); err != nil {
		fmt.Fprintln(stderr, "holdfast-piv: error:", err)
		return 1
	}
	return 0
}
