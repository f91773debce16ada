package prompt

import "errors"

// What became of a prompt that nobody answered, in the chain of causes of its
// error. An error with neither of them says that nobody could be asked.
var (
	ErrClosed = errors.New("the person closed the prompt, or said no")
	ErrLate   = errors.New("nobody answered the prompt in time")
)
