package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"holdfast/internal/fault"
)

// maxSecret is the length of the longest secret, in bytes: a management key in hex.
const maxSecret = 64

// secretSource is the source of a PIN, a PUK or a management key.
type secretSource struct {
	fd      int
	name    string // for people: PIN, new PUK
	option  string // pin-fd; empty where the command has none
	instead string // an alternative to giving the secret, for the hint; may be empty
}

func (s *secretSource) flag(cmd *cobra.Command, option, name string) {
	s.option, s.name = option, name
	cmd.Flags().IntVar(&s.fd, option, -1, "read the "+name+" from file descriptor `FD`, up to a newline or its end, instead of the terminal")
	noDefault(cmd, option)
}

func (s *secretSource) given() bool { return s.option != "" && s.fd >= 0 }

// read returns the secret from the descriptor when one was given, else from the
// terminal without echo: asked again with again when that is not empty, for a new
// one must not hold a slip. An empty answer gives up.
func (s *secretSource) read(ctx context.Context, a *app, prompt, again string) ([]byte, error) {
	secret, err := s.readAny(ctx, a, prompt, again)
	if err == nil && len(secret) == 0 && !s.given() {
		err = personf("", "no %s was entered", s.name)
	}
	return secret, err
}

// readAny is read for a secret that may be empty.
func (s *secretSource) readAny(ctx context.Context, a *app, prompt, again string) ([]byte, error) {
	if s.given() {
		return s.readDescriptor(a)
	}
	tty, err := a.terminal()
	if err != nil {
		return nil, s.cannotAsk(err)
	}
	defer tty.Close()
	secret, err := askHidden(ctx, tty, prompt)
	if err != nil || again == "" {
		return secret, err
	}
	second, err := askHidden(ctx, tty, again)
	defer clear(second)
	if err == nil && !bytes.Equal(secret, second) {
		err = personf("nothing was done; try again", "the two are not the same")
	}
	return secret, err
}

// cannotAsk returns the error for a secret that cannot be asked for.
func (s *secretSource) cannotAsk(err error) error {
	hint := "run it in a terminal"
	if s.option != "" {
		hint += fmt.Sprintf(", or hand it over with --%s 3 3<FILE", s.option)
	}
	if s.instead != "" {
		hint += ", or " + s.instead
	}
	return personf(hint, "the %s is needed, and there is no terminal to ask for it", s.name)
}

// readDescriptor reads one line and no more: the next secret may be on the next.
func (s *secretSource) readDescriptor(a *app) ([]byte, error) {
	from, err := a.descriptor(s.fd)
	if err != nil {
		return nil, usagef("", "--%s %d: not a descriptor", s.option, s.fd)
	}
	line, err := readLine(from)
	if err != nil {
		return nil, failf("open it for reading: --"+s.option+" 3 3<FILE", "--%s %d: %w", s.option, s.fd, err)
	}
	return line, nil
}

// descriptor returns the file of an open descriptor: always the same one, so that
// several secrets can come through it.
func (a *app) descriptor(fd int) (io.Reader, error) {
	if fd == 0 {
		return a.stdin, nil
	}
	if a.descriptors == nil {
		a.descriptors = map[int]*os.File{}
	}
	if a.descriptors[fd] == nil {
		f := os.NewFile(uintptr(fd), fmt.Sprintf("descriptor %d", fd))
		if f == nil {
			return nil, os.ErrInvalid
		}
		a.descriptors[fd] = f
	}
	return a.descriptors[fd], nil
}

// readLine reads up to a newline, which is not part of the line, or to the end, byte
// by byte. A line that is too long for a secret comes back cut, and still too long.
func readLine(r io.Reader) ([]byte, error) {
	line, one := make([]byte, 0, maxSecret+2), make([]byte, 1)
	for len(line) < cap(line) {
		if _, err := io.ReadFull(r, one); err == io.EOF || err == nil && one[0] == '\n' {
			break
		} else if err != nil {
			return nil, err
		}
		line = append(line, one[0])
	}
	return bytes.TrimSuffix(line, []byte("\r")), nil
}

// readManagementKey reads a management key in hex. Keys of 3DES and AES-192 have 24
// bytes, other AES keys 16 or 32.
func (s *secretSource) readManagementKey(ctx context.Context, a *app, prompt string) ([]byte, error) {
	text, err := s.readAny(ctx, a, prompt, "")
	if err != nil || len(text) == 0 {
		return nil, err
	}
	defer clear(text)
	key := make([]byte, hex.DecodedLen(len(text)))
	if _, err := hex.Decode(key, text); err != nil || len(key) != 16 && len(key) != 24 && len(key) != 32 {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: "a management key has 32, 48 or 64 hexadecimal digits"}
	}
	return key, nil
}
