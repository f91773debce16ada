package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"holdfast/agent/keys"
)

// pinSource says where a PIN comes from.
type pinSource struct{ fd int }

func (s *pinSource) flag(cmd *cobra.Command) {
	cmd.Flags().IntVar(&s.fd, "pin-fd", -1, "read the PIN from file descriptor `FD`, up to a newline or its end, instead of the terminal")
	noDefault(cmd, "pin-fd")
}

func (s *pinSource) given() bool { return s.fd >= 0 }

// read returns the PIN from the descriptor when one was given, else from the
// terminal without echo: asked again with again when that is not empty, for a
// new PIN must not hold a slip.
func (s *pinSource) read(ctx context.Context, a *app, prompt, again string) ([]byte, error) {
	if s.given() {
		return s.readDescriptor(a)
	}
	tty, err := a.terminal()
	if err != nil {
		return nil, &problem{
			"a PIN is needed, and there is no terminal to ask for it",
			"run it in a terminal, or hand the PIN over with --pin-fd 3 3<FILE", exitPerson, err,
		}
	}
	defer tty.Close()
	pin, err := askHidden(ctx, tty, prompt)
	if err != nil || again == "" {
		return pin, err
	}
	second, err := askHidden(ctx, tty, again)
	if err == nil && !bytes.Equal(pin, second) {
		err = &problem{"the two PINs are not the same", "nothing was done; try again", exitPerson, nil}
	}
	return pin, err
}

func (s *pinSource) readDescriptor(a *app) ([]byte, error) {
	from := a.stdin
	if s.fd != 0 {
		f := os.NewFile(uintptr(s.fd), fmt.Sprintf("descriptor %d", s.fd))
		if f == nil {
			return nil, usagef("", "--pin-fd %d: not a descriptor", s.fd)
		}
		defer f.Close()
		from = f
	}
	// One byte more than a PIN with its newline shows that it is too long.
	data, err := io.ReadAll(io.LimitReader(from, keys.MaxPIN+3))
	if err != nil {
		return nil, &problem{fmt.Sprintf("--pin-fd %d: %v", s.fd, err), "open it for reading: --pin-fd 3 3<FILE", exitFailed, err}
	}
	pin, _, _ := bytes.Cut(data, []byte("\n"))
	pin = bytes.TrimSuffix(pin, []byte("\r"))
	return pin, keys.CheckPIN(pin)
}

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
	line, err := ask(ctx, tty, prompt)
	if err == nil && len(line) == 0 {
		err = &problem{"no PIN was entered", "", exitPerson, nil}
	}
	return line, err
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

// confirm asks a yes-or-no question on the terminal. Where there is none, the
// person who would answer is what is needed.
func (a *app) confirm(ctx context.Context, question, hint string) error {
	tty, err := a.terminal()
	if err != nil {
		return &problem{"this needs a person's yes, and there is no terminal to ask on", hint, exitPerson, err}
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
	return &problem{"not done: the answer was no", "", exitPerson, nil}
}
