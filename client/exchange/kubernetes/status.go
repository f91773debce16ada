package kubernetes

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/printable"
)

// StatusError is the Kubernetes Status of a failed request, or its HTTP status where
// the answer held no Status.
type StatusError struct {
	Code    int
	Reason  string        // such as Forbidden; empty when the answer was no Status
	Message string        // fit for a terminal
	After   time.Duration // the server's Retry-After, when it gave one
}

// Error returns the server's message.
func (e *StatusError) Error() string {
	if e.Message == "" {
		return strings.TrimSpace(fmt.Sprintf("the API server answered %d %s", e.Code, http.StatusText(e.Code)))
	}
	return e.Message
}

// status holds the members of a meta/v1 Status that are used.
type status struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Reason  string `json:"reason"`
	Code    int    `json:"code"`
	Details *struct {
		RetryAfterSeconds int `json:"retryAfterSeconds"`
	} `json:"details"`
}

// newStatusError reads an answer whose code is not a success.
func newStatusError(response *http.Response, body []byte) *StatusError {
	e := &StatusError{Code: response.StatusCode, After: retryAfter(response.Header, time.Now())}
	var s status
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")) // an unreadable one is no JSON
	if kind == "application/json" && json.Unmarshal(body, &s) == nil && s.Kind == "Status" {
		e.Reason, e.Message = oneLine(s.Reason), oneLine(s.Message)
		if e.After == 0 && s.Details != nil && s.Details.RetryAfterSeconds > 0 {
			e.After = time.Duration(s.Details.RetryAfterSeconds) * time.Second
		}
	}
	return e
}

// retryAfter reads Retry-After (RFC 9110, section 10.2.3): seconds, or a date.
// It is 0 when the header is missing or malformed, and never negative.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return max(time.Duration(seconds)*time.Second, time.Millisecond)
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(date.Sub(now), time.Millisecond)
	}
	return 0
}

// maxText is the length of the longest server's message that is shown whole, in bytes.
const maxText = 1000

// oneLine makes a server's text fit for one line of a terminal.
func oneLine(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return printable.Line(strings.Join(strings.Fields(text), " "))
}
