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

// listen hands out the child's replies until it says nothing any more, or
// something that nobody asked for, and returns which.
func (c *child) listen(stdout io.Reader) error {
	for {
		reply := new(wire.Reply)
		err := wire.Read(stdout, reply)
		switch {
		case errors.Is(err, io.EOF):
			return errGone
		case err != nil:
			return fmt.Errorf("%w: %w", errNonsense, err)
		}
		c.mu.Lock()
		waits, ok := c.waiting[reply.ID]
		delete(c.waiting, reply.ID)
		c.mu.Unlock()
		if !ok {
			return fmt.Errorf("%w: a reply with number %d", errNonsense, reply.ID)
		}
		waits <- reply
	}
}

// Bounds of what one child can put into the log.
const (
	maxLogLine  = 300
	maxLogLines = 200
)

// logLines logs what a child writes for people, up to a bound, and reads on
// beyond it so that the child is not held up.
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
	log.Info("holdfast-piv says more than is logged")
	_, _ = io.Copy(io.Discard, r) // until it ends
}
