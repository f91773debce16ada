package prompt

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Bounds on the conversation with a pinentry, which is another project's program:
// the bytes of one line with its newline (Assuan manual, section 3.1), the lines
// before a command is answered, and the bytes of data in an answer.
const (
	maxLine    = 1000
	maxReplies = 100
	maxData    = 255
)

// errProtocol is a reply that is not Assuan, or exceeds the bounds above.
var errProtocol = errors.New("assuan: not a reply")

// A replyError is an ERR reply. The words after its code are ignored.
type replyError struct{ code uint32 }

func (e *replyError) Error() string { return fmt.Sprintf("assuan: error %d", e.code) }

// The codes of libgpg-error (gpg-error.h) for a user's answers. The upper half of
// a code names the program that it comes from.
const (
	codeTimeout       = 62
	codeCanceled      = 99
	codeNotConfirmed  = 114
	codeFullyCanceled = 198
)

// number returns the code without its source.
func (e *replyError) number() uint32 { return e.code & 0xffff }

// assuan is the client's side of an Assuan conversation (the manual of libassuan,
// section 3). Everything that it reads stays in buf and data, so that a PIN can be
// wiped. It is used by one goroutine.
type assuan struct {
	in   io.Reader
	out  io.Writer
	buf  [maxLine]byte
	rest []byte // of buf: read and not yet parsed
	data []byte // of the last answer; never longer than maxData, and never moved
}

func newAssuan(in io.Reader, out io.Writer) *assuan {
	return &assuan{in: in, out: out, data: make([]byte, 0, maxData)}
}

// wipe clears everything that was read.
func (a *assuan) wipe() {
	clear(a.buf[:])
	clear(a.data[:cap(a.data)])
	a.rest, a.data = nil, a.data[:0]
}

// take returns the only copy of the last answer's data.
func (a *assuan) take() []byte {
	data := a.data
	a.data = make([]byte, 0, maxData)
	a.wipe()
	return data
}

// command sends a command with its argument, if any, and reads the answer. It
// returns a [replyError] when the other side refuses; after any other error the
// conversation is over.
func (a *assuan) command(word, argument string) error {
	line := word
	if argument != "" {
		line += " " + escape(argument)
	}
	if len(line) >= maxLine {
		return fmt.Errorf("assuan: %s: %d bytes", word, len(line))
	}
	if _, err := io.WriteString(a.out, line+"\n"); err != nil {
		return fmt.Errorf("assuan: %s: %w", word, err)
	}
	return a.reply()
}

// reply reads lines up to OK or ERR, and stores the content of D lines in data.
func (a *assuan) reply() error {
	clear(a.data)
	a.data = a.data[:0]
	for range maxReplies {
		line, err := a.line()
		if err != nil {
			return err
		}
		if done, err := a.understand(line); done || err != nil {
			return err
		}
	}
	return errProtocol
}

// understand handles one line of a reply and reports whether it was the last.
func (a *assuan) understand(line []byte) (done bool, err error) {
	word, rest, _ := bytes.Cut(line, []byte(" "))
	switch string(word) {
	case "OK":
		return true, nil
	case "ERR":
		return true, refusal(string(rest))
	case "D":
		return false, a.keep(rest)
	case "S":
		return false, status(rest)
	case "INQUIRE": // no inquiry is answered
		_, err := io.WriteString(a.out, "CAN\n")
		return false, err
	}
	if len(line) > 0 && line[0] == '#' {
		return false, nil
	}
	return false, errProtocol
}

// status ignores a pinentry's status lines, except that it rejects a PIN from the
// pinentry's cache: the user did not type it now, and a wrong one would return each time.
func status(rest []byte) error {
	if bytes.HasPrefix(rest, []byte("PASSWORD_FROM_CACHE")) {
		return errProtocol
	}
	return nil
}

// line returns the next line without its newline. It is overwritten by the next
// call.
func (a *assuan) line() ([]byte, error) {
	for {
		if line, rest, found := bytes.Cut(a.rest, []byte("\n")); found {
			a.rest = rest
			return line, nil
		}
		n := copy(a.buf[:], a.rest)
		if n == len(a.buf) {
			return nil, errProtocol
		}
		more, err := a.in.Read(a.buf[n:])
		a.rest = a.buf[:n+more]
		if more == 0 && err != nil {
			return nil, fmt.Errorf("assuan: %w", err)
		}
	}
}

// keep appends the content of a D line to data. Bytes that a D line cannot hold are
// written as % and two hexadecimal digits.
func (a *assuan) keep(s []byte) error {
	for i := 0; i < len(s); i++ {
		b := s[i]
		if b == '%' {
			if len(s)-i < 3 {
				return errProtocol
			}
			var code [1]byte // strconv would copy a PIN into strings
			if _, err := hex.Decode(code[:], s[i+1:i+3]); err != nil {
				return errProtocol
			}
			b, i = code[0], i+2
		}
		if len(a.data) == maxData {
			return errProtocol
		}
		a.data = append(a.data, b)
	}
	return nil
}

// refusal parses the rest of an ERR line: a code, then words.
func refusal(rest string) error {
	number, _, _ := strings.Cut(rest, " ")
	code, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return errProtocol
	}
	return &replyError{code: uint32(code)}
}

// escape writes control characters and % as % and two hexadecimal digits.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '%' || c == 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
