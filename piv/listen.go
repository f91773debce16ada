package piv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"holdfast/piv/wire"
)

// listen delivers the child's replies. It returns errEnded at the end of the output,
// and errMalformed for a malformed or unexpected message.
func (c *child) listen(stdout io.Reader) error {
	for {
		reply := new(wire.Reply)
		err := wire.Read(stdout, reply)
		switch {
		case errors.Is(err, io.EOF):
			return errEnded
		case err != nil:
			return fmt.Errorf("%w: %w", errMalformed, err)
		}
		c.mu.Lock()
		waits, ok := c.waiting[reply.ID]
		delete(c.waiting, reply.ID)
		c.mu.Unlock()
		if !ok {
			return fmt.Errorf("%w: a reply with number %d", errMalformed, reply.ID)
		}
		waits <- reply
	}
}

// Bounds on one child's log output.
const (
	maxLogLine  = 300
	maxLogLines = 200
)

// logLines logs a child's standard error up to a bound, and discards the rest, so
// that the child does not block.
func logLines(log *slog.Logger, stderr io.Reader) {
	r := bufio.NewReaderSize(stderr, maxLogLine)
	for n := 0; n < maxLogLines; {
		line, more, err := r.ReadLine()
		if err != nil {
			return
		}
		if text := strings.TrimSpace(strings.ToValidUTF8(string(line), "?")); text != "" {
			log.Info("holdfast-piv", "says", text)
			n++
		}
		for more && err == nil {
			_, more, err = r.ReadLine()
		}
	}
	log.Info("holdfast-piv wrote more than is logged")
	_, _ = io.Copy(io.Discard, r) // until it ends
}
