package prompt

import "errors"

// The causes of a prompt's error when the prompt was shown and not answered. An
// error with neither in its chain means that no prompt could be shown.
var (
	ErrClosed = errors.New("the user closed the prompt or refused")
	ErrLate   = errors.New("nobody answered the prompt in time")
)
