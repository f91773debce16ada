package audit

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// verifyFile walks the chain of the log at path, which no agent has open, and compares
// it with its anchor.
func verifyFile(path string) (Summary, error) {
	// The anchor is read first: records that are added meanwhile come after it.
	end, anchorErr := readAnchor(path)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Summary{}, err
	}
	defer f.Close()
	c := newChecker(f, end)
	s, err := c.run(context.Background())
	if err == nil && anchorErr != nil {
		err = &Fault{Line: c.line + 1, What: whatAnchor, Fact: anchorFact(anchorErr)}
	}
	return s, err
}

func anchorFact(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "the anchor is missing, so that a missing end cannot be detected"
	}
	return "the anchor cannot be used: " + err.Error()
}
