package main

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// askHidden asks on the terminal and reads a line without echo. Echo goes off
// before the prompt, so that nothing typed at it is seen, and the terminal is as
// it was before when askHidden returns, also when ctx ends meanwhile. The
// package term would turn echo off later, and again after it was given up.
func askHidden(ctx context.Context, tty *os.File, prompt string) ([]byte, error) {
	fd := int(tty.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	hidden := *before
	hidden.Lflag = hidden.Lflag&^unix.ECHO | unix.ICANON | unix.ISIG
	hidden.Iflag |= unix.ICRNL
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &hidden); err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	defer fmt.Fprintln(tty)
	defer unix.IoctlSetTermios(fd, unix.TCSETS, before)
	return ask(ctx, tty, prompt)
}

// ask asks on the terminal and returns the line that is typed, without its end.
func ask(ctx context.Context, tty *os.File, prompt string) ([]byte, error) {
	fmt.Fprint(tty, prompt)
	typed := make(chan []byte, 1)
	go func() {
		line := make([]byte, 256) // a terminal gives one line at a time
		n, _ := tty.Read(line)    // an error reads as nothing
		typed <- bytes.TrimRight(line[:n], "\r\n")
	}()
	select {
	case line := <-typed:
		return line, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// confirm asks a yes-or-no question on the terminal. Without a terminal the exit code
// says that a user has to act.
func (a *app) confirm(ctx context.Context, question, hint string) error {
	tty, err := a.terminal()
	if err != nil {
		return personf(hint, "this needs confirmation, and there is no terminal to ask on")
	}
	defer tty.Close()
	answer, err := ask(ctx, tty, question+" [y/N] ")
	if err != nil {
		fmt.Fprintln(tty)
		return err
	}
	switch string(bytes.ToLower(bytes.TrimSpace(answer))) {
	case "y", "yes":
		return nil
	}
	return personf("", "nothing was done: the answer was no")
}
