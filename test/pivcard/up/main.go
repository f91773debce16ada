// Command up starts a PIV card behind a pcscd of its own, for demonstrations:
// it prints the environment that leads to it and the file with the attestation
// root, one NAME=value per line, READY=1 last, and runs until its standard input
// ends or it gets a signal.
//
//	up -serial 4711 -dir /tmp/card -touch 0
//
// Lines on its standard input act as the hands of a user; see desk. Package pivcard
// describes the card and its limits.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"holdfast/test/pivcard"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.SetOutput(stderr)
	serial := flags.Uint("serial", 10_000_001, "the card's serial `number`")
	firmware := flags.String("firmware", "5.4.3", "the card's firmware `version`")
	dir := flags.String("dir", "", "an existing `directory` for sockets; a temporary one by default")
	touch := flags.Duration("touch", time.Second, "touch the card so `long` after it asks; 0 is never")
	if flags.Parse(args) != nil {
		return 2
	}
	version, err := pivcard.ParseFirmware(*firmware)
	if err != nil {
		fmt.Fprintf(stderr, "up: -firmware: %v\n", err)
		return 2
	}
	o := pivcard.Options{Serial: uint32(*serial), Firmware: version}
	if err := serve(o, *dir, *touch, stdin, stdout); err != nil {
		fmt.Fprintf(stderr, "up: %v\n", err)
		return 1
	}
	return 0
}

// serve runs the rig until stdin ends or a signal comes.
func serve(o pivcard.Options, dir string, touch time.Duration, stdin io.Reader, stdout io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if dir == "" {
		temporary, err := os.MkdirTemp("", "piv-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temporary)
		dir = temporary
	}
	rig, err := pivcard.New(dir, 1)
	if err != nil {
		return err
	}
	defer rig.Close()
	card := rig.NewCard(o)
	card.TouchAfter(touch)
	if err := rig.Insert(card); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "%s\nPIV_ROOT=%s\nPIV_READER=%s\nREADY=1\n", rig.Env()[0], rig.RootFile(), rig.ReaderOf(card)); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- (&desk{rig, card}).obey(stdin, stdout) }()
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}
