package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Record is one line of the log. Every reader of the log may see its content: it never
// holds a PIN, a token, a claim value or a message to be signed.
type Record struct {
	Time      time.Time         `json:"time"`                // UTC; set by Append
	Seq       uint64            `json:"seq"`                 // 1 for the first record of a log; set by Append
	Kind      Kind              `json:"kind"`                // the event
	Request   string            `json:"request,omitempty"`   // joins the records of one request
	Caller    *Caller           `json:"caller,omitempty"`    // the process that asked
	Operation string            `json:"operation,omitempty"` // the operation, in policy's words
	Key       string            `json:"key,omitempty"`       // the requested name, whether or not there is such a key
	Owner     *uint32           `json:"owner,omitempty"`     // the uid that the key belongs to
	Purpose   string            `json:"purpose,omitempty"`   // of the key
	Decision  string            `json:"decision,omitempty"`  // allow or deny
	Rule      string            `json:"rule,omitempty"`      // the rule that decided
	Outcome   string            `json:"outcome,omitempty"`   // ok, or the kind of the error
	Detail    map[string]string `json:"detail,omitempty"`    // further facts
	Prev      string            `json:"prev"`                // SHA-256 of the previous line without its newline, hex; zeros in the first; set by Append
}

// Kind is the event of a record. The list is open: readers skip unknown kinds.
type Kind string

// The kinds of records. KindBreak is written by [Open] only.
const (
	KindDecision Kind = "decision" // policy's decision, before the device is used
	KindOutcome  Kind = "outcome"  // the outcome, before the reply
	KindStart    Kind = "start"
	KindStop     Kind = "stop"
	KindReload   Kind = "reload"
	KindBreak    Kind = "break" // the records before it have a fault: see Detail
)

// Caller is the process that asked, as the kernel and systemd identify it.
type Caller struct {
	UID      uint32    `json:"uid"`
	User     string    `json:"user,omitempty"`
	GID      uint32    `json:"gid"`
	PID      int32     `json:"pid"`
	Start    uint64    `json:"start,omitempty"`    // start time of the process, in clock ticks since boot
	Unit     string    `json:"unit,omitempty"`     // its system unit
	Reported *Reported `json:"reported,omitempty"` // the process for which the caller claims to ask
}

// Reported is the process for which a caller claims to ask. It is not verified.
type Reported struct {
	UID   uint32 `json:"uid"`
	PID   int32  `json:"pid"`
	Start uint64 `json:"start"` // start time of the process, in clock ticks since boot
	Unit  string `json:"unit,omitempty"`
}

// maxLine is the longest line, in bytes without the newline. The longest record
// that the agent makes is a small part of it.
const maxLine = 16 << 10

// hash is the SHA-256 of a line without its newline.
type hash [sha256.Size]byte

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// encode returns the line of r, without a newline: JSON in the order of the
// fields above, without spaces and without escapes for HTML.
func encode(r *Record) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	line := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(line) > maxLine {
		return nil, fmt.Errorf("a record of %d bytes, at most %d are possible", len(line), maxLine)
	}
	return line, nil
}

// decode reads a line in exactly the form that encode writes: a line with the same
// content in another form has been edited.
func decode(line []byte) (Record, error) {
	var r Record
	if len(line) > maxLine {
		return r, fmt.Errorf("longer than %d bytes", maxLine)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Record{}, err
	}
	again, err := encode(&r)
	if err != nil {
		return Record{}, err
	}
	if !bytes.Equal(again, line) {
		return Record{}, errors.New("not in the form that the agent writes")
	}
	return r, nil
}

// maxText bounds one text, in bytes. A caller that supplies some of them must not be
// able to make a record too long to be written.
const maxText = 512

// fit cuts r's texts to maxText bytes of valid UTF-8, so that they decode as they were
// encoded.
func (r *Record) fit() {
	texts := []*string{(*string)(&r.Kind), &r.Request, &r.Operation, &r.Key, &r.Purpose, &r.Decision, &r.Rule, &r.Outcome}
	if r.Caller != nil {
		c := *r.Caller
		r.Caller = &c
		texts = append(texts, &c.User, &c.Unit)
		if c.Reported != nil {
			reported := *c.Reported
			c.Reported = &reported
			texts = append(texts, &reported.Unit)
		}
	}
	for _, text := range texts {
		*text = fitting(*text)
	}
	if r.Detail == nil {
		return
	}
	detail := make(map[string]string, len(r.Detail))
	for name, text := range r.Detail {
		detail[fitting(name)] = fitting(text)
	}
	r.Detail = detail
}

func fitting(text string) string {
	if len(text) > maxText {
		text = text[:maxText-len("...")] + "..."
	}
	return strings.ToValidUTF8(text, "\ufffd")
}
