package tpm

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// step names the command that err came from. An error that is neither a
// response code nor a lost reply means that go-tpm could not read the reply,
// or its authorisation was wrong: the device's state is unknown then.
func step(command string, l *link, err error) error {
	if err == nil {
		return nil
	}
	var lost *lostError
	var retry *retryError
	known := codeOf(err) != tpm2.TPMRCSuccess || errors.As(err, &lost) || errors.As(err, &retry) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if !known {
		l.lost = true
		err = &lostError{err: fmt.Errorf("%w: %v", errMalformed, err)}
	}
	return fmt.Errorf("%s: %w", command, err)
}
