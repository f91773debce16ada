package proxy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"holdfast/client/broker/upstream"
	"holdfast/client/profile"
	"holdfast/internal/fault"
	"holdfast/internal/printable"
)

var _ Pools = (*upstream.Pools)(nil)

// status is metav1.Status of k8s.io/apimachinery, as API servers answer with it.
type status struct {
	Kind       string   `json:"kind"`
	APIVersion string   `json:"apiVersion"`
	Metadata   struct{} `json:"metadata"`
	Status     string   `json:"status"`
	Message    string   `json:"message"`
	Reason     string   `json:"reason,omitempty"`
	Details    *details `json:"details,omitempty"`
	Code       int      `json:"code"`
}

// details is metav1.StatusDetails, of which client-go reads the delay.
type details struct {
	RetryAfterSeconds int `json:"retryAfterSeconds"`
}

// reasons are metav1.StatusReason by code. kubectl shows them; for 502 there is
// none, and the name of the code says it.
var reasons = map[int]string{
	http.StatusBadRequest:          "BadRequest",
	http.StatusUnauthorized:        "Unauthorized",
	http.StatusForbidden:           "Forbidden",
	http.StatusMethodNotAllowed:    "MethodNotAllowed",
	http.StatusTooManyRequests:     "TooManyRequests",
	http.StatusInternalServerError: "InternalError",
	http.StatusBadGateway:          "BadGateway",
	http.StatusServiceUnavailable:  "ServiceUnavailable",
	http.StatusGatewayTimeout:      "Timeout",
}

// writeStatus answers with a Status object. It is JSON whatever the client asked
// for: client-go reads an answer by its Content-Type. kubectl prints the message as
// it is, and there may be names in it that a server chose: it is made printable.
//
// client-go's discovery, with which kubectl begins, reads no Status and shows a text of
// its own for most codes. It prints warnings, so there the message is one too.
func writeStatus(w http.ResponseWriter, path string, r *refusal) {
	message := "holdfast: " + r.fault.Message
	if hint := r.fault.Advice(); hint != "" {
		message += "; " + hint
	}
	message = printable.Line(message)
	if discovers(path) {
		warn(w.Header(), message)
	}
	answer := status{Kind: "Status", APIVersion: "v1", Status: "Failure", Message: message, Reason: reasons[r.code], Code: r.code}
	if wait := r.retryAfter(); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(wait))
		answer.Details = &details{wait}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		body = nil // strings always marshal
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(r.code)
	w.Write(append(body, '\n')) // to a client that may be gone
}

// retryAfter returns after how many seconds the client may ask again, and 0 where the
// user is to see the error instead: client-go asks again by itself, ten times.
func (r *refusal) retryAfter() int {
	switch {
	case r.code == http.StatusTooManyRequests, r.outcome == outcomeEnding:
		return 1
	case r.code == http.StatusServiceUnavailable && r.fault.Kind == fault.PINRequired:
		return 5
	}
	return 0
}

// warn adds what kubectl prints beside an answer.
func warn(h http.Header, message string) { h.Add("Warning", "299 holdfast "+quoted(message)) }

// warnUnauthorized adds to the API server's own answer which key's certificate it did
// not accept.
func warnUnauthorized(h http.Header, p *profile.Profile) {
	warn(h, fmt.Sprintf("holdfast: the cluster of profile %s does not accept the certificate of key %s; `holdfast certificate show %s` shows it, and holdfast enroll kubernetes %s gets one that the cluster has signed",
		p.Name, p.Key, p.Key, p.Name))
}

// discovers reports whether a path is one of discovery: /api, /apis/GROUP/VERSION
// and their like, or the schemas.
func discovers(path string) bool {
	return strings.Count(strings.TrimRight(path, "/"), "/") <= 3 || strings.HasPrefix(path, "/openapi/")
}

// quoted returns text as a quoted string of RFC 9110, section 5.6.4, in ASCII.
func quoted(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// codes are the answers to the classes of [upstream.Error].
var codes = map[upstream.Class]int{
	upstream.Agent:   http.StatusServiceUnavailable,
	upstream.Key:     http.StatusServiceUnavailable,
	upstream.TLS:     http.StatusBadGateway,
	upstream.Network: http.StatusBadGateway,
	upstream.Timeout: http.StatusGatewayTimeout,
}

// explain turns a failure on the way to the API server into an answer.
func explain(err error) *refusal {
	var own *refusal
	if errors.As(err, &own) {
		return own
	}
	var known *upstream.Error
	if errors.As(err, &known) {
		return &refusal{cmp.Or(codes[known.Class], http.StatusBadGateway), "upstream-" + string(known.Class), known.Fault}
	}
	return refuse(http.StatusBadGateway, "upstream-network", "try again; holdfast doctor looks closer", "the API server's answer was lost: %v", err)
}
