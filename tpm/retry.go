package tpm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/go-tpm/tpm2"
)

// retryable reports the warnings with which a TPM asks for the same command
// again (TPM 2.0 Part 2, section 6.6.3).
func retryable(rc tpm2.TPMRC) bool {
	switch rc {
	case tpm2.TPMRCRetry, tpm2.TPMRCYielded, tpm2.TPMRCTesting, tpm2.TPMRCNVRate, tpm2.TPMRCCanceled:
		return true
	}
	return false
}

// A retryError means that the device asked for another try until the caller's deadline
// passed.
type retryError struct {
	rc  tpm2.TPMRC
	err error
}

// Error names the code.
func (e *retryError) Error() string { return fmt.Sprintf("%v: %v", e.rc, e.err) }

// Unwrap returns the cause of the end of the wait.
func (e *retryError) Unwrap() error { return e.err }

// The pause before a repeated try doubles from the first to the last.
const (
	firstPause = 500 * time.Microsecond
	lastPause  = 100 * time.Millisecond
)

// pause waits before try number try+2, with a random half (jitter), and returns ctx's
// error when ctx ends first.
func pause(ctx context.Context, try int) error {
	wait := min(firstPause<<min(try, 10), lastPause)
	timer := time.NewTimer(wait/2 + rand.N(wait/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
