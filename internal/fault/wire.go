package fault

import (
	"strings"
	"time"
)

// Parameters is the parameters of every error of our varlink interfaces.
type Parameters struct {
	Message      string `json:"message"`
	Hint         string `json:"hint,omitempty"` // the next step as a user reads it
	Next         *Next  `json:"next,omitempty"` // the same for programs, where they act on it
	RetryAfterMS int64  `json:"retryAfterMS,omitempty"`
}

// An Interface translates between errors and the error replies of one varlink
// interface.
type Interface struct {
	Name    string // io.holdfast.Agent
	Service string // the program whose log has the cause of an internal error: agent
	Kinds   []Kind // the kinds that cross
}

// ErrorName returns the varlink error of a kind: io.holdfast.Agent.PINRequired for
// pin-required.
func (i Interface) ErrorName(kind Kind) string {
	var b strings.Builder
	b.WriteString(i.Name + ".")
	for word := range strings.SplitSeq(string(kind), "-") {
		if word == "pin" {
			b.WriteString("PIN")
			continue
		}
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// KindOf returns the kind that a varlink error stands for, and false for an error
// of another interface or of a later version.
func (i Interface) KindOf(errorName string) (Kind, bool) {
	for _, kind := range i.Kinds {
		if i.ErrorName(kind) == errorName {
			return kind, true
		}
	}
	return "", false
}

// FromError returns the varlink error for err. Its cause stays on this side; an
// error without an [Error] in its chain crosses as Internal without its text.
func (i Interface) FromError(err error) (name string, p Parameters) {
	e, ok := AsError(err)
	if !ok {
		e = &Error{Kind: Internal, Message: "internal error", Hint: "the " + i.Service + "'s log has the cause"}
	}
	p = Parameters{Message: e.Message, Hint: e.Advice(), RetryAfterMS: e.RetryAfter.Milliseconds()}
	if e.Next.Do != "" {
		p.Next = &e.Next
	}
	return i.ErrorName(e.Kind), p
}

// ToError returns the error that a varlink error stands for, and false when it is
// not of this interface.
func (i Interface) ToError(name string, p Parameters) (*Error, bool) {
	kind, ok := i.KindOf(name)
	if !ok {
		return nil, false
	}
	e := &Error{Kind: kind, Message: p.Message, Hint: p.Hint, RetryAfter: time.Duration(p.RetryAfterMS) * time.Millisecond}
	if p.Next != nil {
		e.Next = *p.Next
		if e.Hint == e.Next.String() {
			e.Hint = "" // it says nothing more, and must not outlast a change of Next
		}
	}
	return e, true
}
