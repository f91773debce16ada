package tpm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// A lostError means that a command was sent and no usable reply came back.
type lostError struct {
	err   error
	ended error // the context's error when that is the cause
}

// Error describes the failure.
func (e *lostError) Error() string { return "no reply: " + e.err.Error() }

// Unwrap returns both causes.
func (e *lostError) Unwrap() []error {
	if e.ended == nil {
		return []error{e.err}
	}
	return []error{e.err, e.ended}
}

// A dialError means that the device cannot be opened.
type dialError struct{ err error }

// Error returns the cause's text.
func (e *dialError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *dialError) Unwrap() error { return e.err }

// hintOpen is the next step for a device that cannot be opened.
const hintOpen = "check that the TPM is enabled in the firmware setup and its driver (tpm_tis, tpm_crb) is loaded, " +
	"that this user may open /dev/tpmrm0 (group tss), or name a software TPM with --device swtpm:PATH"

// hintOwner is the next step when the owner hierarchy needs an authorisation.
const hintOwner = "put the owner authorisation into a file of the agent's and name it as owner-auth-file in agent.yaml"

// explain turns err into the fault.Error that callers see. Errors that already are
// one pass through. Response codes are not authenticated: they choose the message, and
// no trust depends on them.
func (t *TPM) explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := fault.AsError(err); ok {
		return err
	}
	var retry *retryError
	var lost *lostError
	var dial *dialError
	var rc tpm2.TPMRC
	switch {
	case errors.As(err, &retry):
		return &fault.Error{Kind: fault.Busy, Message: "the TPM kept asking for another try", RetryAfter: lastPause, Err: err}
	case errors.As(err, &lost):
		return t.explainLost(lost, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return t.explainEnded(err)
	case errors.As(err, &dial):
		return &fault.Error{Kind: fault.DeviceAbsent, Message: "the TPM cannot be opened", Hint: hintFor(err), Err: err}
	case errors.As(err, &rc):
		return explainCode(rc, err)
	}
	return &fault.Error{Kind: fault.Internal, Message: "TPM backend", Err: err}
}

// hintFor is the next step after a failed open: other rights, or another device.
func hintFor(err error) string {
	if errors.Is(err, os.ErrPermission) {
		return "this user may not open it: run the agent as a member of the group that owns it" + groupOf(err) + ", or with a udev rule for its user"
	}
	return hintOpen
}

// groupOf names the group of the device that could not be opened, unless it is root's,
// which no agent is to join.
func groupOf(err error) string {
	const usual = " (tss, where tpm-udev is installed)"
	var failed *os.PathError
	if !errors.As(err, &failed) {
		return usual
	}
	info, statErr := os.Stat(failed.Path)
	if statErr != nil {
		return usual
	}
	gid := info.Sys().(*syscall.Stat_t).Gid // always a Stat_t on Linux
	group, lookErr := user.LookupGroupId(strconv.FormatUint(uint64(gid), 10))
	if gid == 0 || lookErr != nil {
		return usual
	}
	return " (" + group.Name + ")"
}

// explainLost names the three ways in which a reply goes missing.
func (t *TPM) explainLost(lost *lostError, err error) error {
	switch {
	case errors.Is(lost.err, errMalformed):
		return &fault.Error{Kind: fault.DeviceFailed, Message: "the TPM's reply makes no sense", Err: err}
	case lost.ended != nil:
		return t.explainEnded(err)
	}
	return &fault.Error{Kind: fault.DeviceAbsent, Message: "the TPM went away during a command", Hint: "try again", Err: err}
}

// explainEnded is for a caller whose deadline has passed: the first time the device is
// late, after that it is known not to answer.
func (t *TPM) explainEnded(err error) error {
	if errors.Is(err, context.Canceled) {
		return &fault.Error{Kind: fault.Deadline, Message: "the caller gave up before the TPM answered", Err: err}
	}
	if t.state() == keys.StateWedged {
		return &fault.Error{Kind: fault.DeviceWedged, Message: "the TPM takes commands and does not answer",
			Hint: "it is used again as soon as it answers; if it does not, restart the machine", Err: err}
	}
	return &fault.Error{Kind: fault.Deadline, Message: "the TPM did not answer in time", Err: err}
}

// explainCode names a response code.
func explainCode(rc tpm2.TPMRC, err error) error {
	switch {
	case rc == tpm2.TPMRCFailure:
		return &fault.Error{Kind: fault.DeviceFailed, Message: "the TPM is in failure mode", Hint: "restart the machine", Err: err}
	case rc == tpm2.TPMRCLockout:
		return &fault.Error{Kind: fault.DeviceLocked, Message: "the TPM is locked after wrong authorisations", Hint: hintLocked, Err: err}
	case full(rc):
		return &fault.Error{Kind: fault.Busy, Message: "other programs fill the TPM: " + codeName(rc),
			Hint: "close other users of the TPM, or use the kernel's resource manager (tpm:/dev/tpmrm0)", RetryAfter: lastPause, Err: err}
	case rc == tpm2.TPMRCInitialize:
		return &fault.Error{Kind: fault.DeviceFailed, Message: "the TPM was not started by the firmware", Hint: "restart the machine", Err: err}
	}
	return &fault.Error{Kind: fault.Internal, Message: "the TPM refused a command", Err: err}
}

// hintLocked is the next step during a lockout.
const hintLocked = "keys without a PIN still sign; wait, do not try PINs: other software on this machine shares the lockout"

// codeName is a response code by its name in TPM 2.0 Part 2.
func codeName(rc tpm2.TPMRC) string {
	switch rc {
	case tpm2.TPMRCObjectMemory:
		return "TPM_RC_OBJECT_MEMORY"
	case tpm2.TPMRCSessionMemory:
		return "TPM_RC_SESSION_MEMORY"
	case tpm2.TPMRCMemory:
		return "TPM_RC_MEMORY"
	case tpm2.TPMRCSessionHandles:
		return "TPM_RC_SESSION_HANDLES"
	case tpm2.TPMRCObjectHandles:
		return "TPM_RC_OBJECT_HANDLES"
	}
	return fmt.Sprintf("response code %#x", uint32(rc))
}

// full reports whether rc means that all slots are taken.
func full(rc tpm2.TPMRC) bool {
	switch rc {
	case tpm2.TPMRCObjectMemory, tpm2.TPMRCSessionMemory, tpm2.TPMRCMemory, tpm2.TPMRCSessionHandles, tpm2.TPMRCObjectHandles:
		return true
	}
	return false
}

// codeOf returns the response code in err's chain, or success.
func codeOf(err error) tpm2.TPMRC {
	var rc tpm2.TPMRC
	if errors.As(err, &rc) {
		return rc
	}
	return tpm2.TPMRCSuccess
}

// aboutParameter reports a format-1 code: one that is about a handle, a
// parameter or a session (TPM 2.0 Part 2, section 6.6.1).
func aboutParameter(err error) bool { return codeOf(err)&0x80 != 0 }

// wrongAuth reports whether err is a refused authorisation value.
func wrongAuth(err error) bool {
	return errors.Is(err, tpm2.TPMRCAuthFail) || errors.Is(err, tpm2.TPMRCBadAuth)
}

// vanished reports whether a handle that we hold is no longer valid: the device was
// reset or cleared.
func vanished(err error) bool {
	rc := codeOf(err)
	byReference := rc >= tpm2.TPMRCReferenceH0 && rc <= tpm2.TPMRCReferenceH6
	return byReference || errors.Is(err, tpm2.TPMRCHandle)
}

// sessionVanished is vanished for sessions.
func sessionVanished(err error) bool {
	rc := codeOf(err)
	return rc >= tpm2.TPMRCReferenceS0 && rc <= tpm2.TPMRCReferenceS6
}

// gone reports whether the other end closed the connection, which is no fault of the
// device behind it.
func gone(err error) bool {
	var lost *lostError
	return errors.As(err, &lost) && lost.ended == nil && !errors.Is(lost.err, errMalformed)
}

// missingDevice reports whether opening failed because the device does not exist.
func missingDevice(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO)
}
