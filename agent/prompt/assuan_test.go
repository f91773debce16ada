package prompt

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// said is a conversation in which the other side says text.
func said(text string) (*assuan, *bytes.Buffer) {
	var out bytes.Buffer
	return newAssuan(strings.NewReader(text), &out), &out
}

func TestAssuanReply(t *testing.T) {
	for name, test := range map[string]struct {
		text, data string
		bad        bool
	}{
		"ok":                     {"OK\n", "", false},
		"ok with words":          {"OK Pleased to meet you\n", "", false},
		"data":                   {"D abc\nOK\n", "abc", false},
		"data in two lines":      {"D ab\nD c\nOK\n", "abc", false},
		"blanks":                 {"D  a b \nOK\n", " a b ", false},
		"escapes":                {"D %25%0a%0D%e4\nOK\n", "%\n\r\xe4", false},
		"comment and status":     {"# hello\nS PIN_REPEATED\nD a\nOK\n", "a", false},
		"inquiry":                {"INQUIRE QUALITY x\nOK\n", "", false},
		"as long as a line may":  {"OK " + strings.Repeat("x", maxLine-4) + "\n", "", false},
		"longer":                 {"OK " + strings.Repeat("x", maxLine-3) + "\n", "", true},
		"as much as data may":    {"D " + strings.Repeat("x", maxData) + "\nOK\n", strings.Repeat("x", maxData), false},
		"more":                   {"D " + strings.Repeat("x", maxData+1) + "\nOK\n", "", true},
		"many lines":             {strings.Repeat("#\n", maxReplies) + "OK\n", "", true},
		"fewer lines":            {strings.Repeat("#\n", maxReplies-1) + "OK\n", "", false},
		"end in a line":          {"OK", "", true},
		"end before the answer":  {"D abc\n", "", true},
		"escape without digits":  {"D %\nOK\n", "", true},
		"escape with one digit":  {"D %a\nOK\n", "", true},
		"escape with others":     {"D %+1\nOK\n", "", true},
		"empty line":             {"\nOK\n", "", true},
		"another word":           {"OKAY\n", "", true},
		"carriage return":        {"OK\r\n", "", true},
		"error without a code":   {"ERR\n", "", true},
		"error with a sign":      {"ERR -1\n", "", true},
		"error with a long code": {"ERR 4294967296 x\n", "", true},
		"a remembered PIN":       {"S PASSWORD_FROM_CACHE\nD 1234\nOK\n", "", true},
	} {
		a, _ := said(test.text)
		err := a.reply()
		var refused *replyError
		if (err != nil) != test.bad || errors.As(err, &refused) || !test.bad && string(a.data) != test.data {
			t.Errorf("%s: got %q, %v", name, a.data, err)
		}
	}
}

// TestAssuanErrors reads replies as pinentries give them.
func TestAssuanErrors(t *testing.T) {
	for text, want := range map[string]uint32{
		"ERR 83886179 Operation cancelled <Pinentry>\n":       codeCanceled,
		"ERR 83886278 Operation fully cancelled <Pinentry>\n": codeFullyCanceled,
		"ERR 83886194 Not confirmed <Pinentry>\n":             codeNotConfirmed,
		"ERR 83886142 Timeout <Pinentry>\n":                   codeTimeout,
		"ERR 99\n":                                            codeCanceled,
	} {
		a, _ := said(text)
		var refused *replyError
		if err := a.reply(); !errors.As(err, &refused) || refused.number() != want {
			t.Errorf("%q: got %v, want code %d", text, err, want)
		}
	}
}

// TestAssuanCommand sees what is sent: nothing in an argument can end its line or
// mean something else.
func TestAssuanCommand(t *testing.T) {
	a, out := said(strings.Repeat("OK\n", 9))
	if err := a.command("SETDESC", "a%b\nc\r\x00\x7fd é"); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "SETDESC a%25b%0Ac%0D%00%7Fd é\n"; got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
	if err := a.command("X", strings.Repeat("y", maxLine-3)); err != nil {
		t.Error(err)
	}
	if err := a.command("X", strings.Repeat("y", maxLine-2)); err == nil {
		t.Error("a line of more than 1000 bytes was sent")
	}
	if err := a.command("X", strings.Repeat("\n", maxLine/3)); err == nil {
		t.Error("a line of more than 1000 bytes was sent")
	}
}

// TestAssuanInquiry: the other side asks, and is told nothing.
func TestAssuanInquiry(t *testing.T) {
	a, out := said("INQUIRE PASSPHRASE\nERR 83886179 cancelled\n")
	if err := a.reply(); err == nil || out.String() != "CAN\n" {
		t.Errorf("got %v, sent %q", err, out)
	}
}

// TestAssuanReadsWhatThereIs: lines arrive in pieces, or several at once.
func TestAssuanReadsWhatThereIs(t *testing.T) {
	const text = "OK\nD abc\nOK\nERR 99 no\n"
	for name, in := range map[string]io.Reader{
		"at once": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)),
		"with the end": iotest.DataErrReader(strings.NewReader(text)),
	} {
		a := newAssuan(in, io.Discard)
		first, second := a.reply(), a.reply()
		if data := string(a.take()); first != nil || second != nil || data != "abc" {
			t.Errorf("%s: got %v, %v, %q", name, first, second, data)
		}
	}
}

// TestAssuanKeepsNoPIN: what was taken is the only copy of it.
func TestAssuanKeepsNoPIN(t *testing.T) {
	a, _ := said("D 1234%35\nOK\n")
	if err := a.reply(); err != nil {
		t.Fatal(err)
	}
	data := a.data
	pin := a.take()
	if string(pin) != "12345" || &pin[0] != &data[0] {
		t.Errorf("took %q, a copy", pin)
	}
	if bytes.Contains(a.buf[:], []byte("1234")) || bytes.Contains(a.data[:cap(a.data)], []byte("1")) {
		t.Error("the PIN is still there")
	}
	b, _ := said("D 12345\nERR 99 no\n")
	if err := b.reply(); err == nil {
		t.Fatal("no error")
	}
	data = b.data
	b.wipe()
	if bytes.Contains(b.buf[:], []byte("1234")) || bytes.Contains(data[:cap(data)], []byte("1")) {
		t.Error("a PIN that nobody took is still there")
	}
}

var replies = []string{
	"OK\n", "OK Pleased to meet you\nD curses\nOK\n", "D 12%2534\nOK\n", "ERR 83886179 Operation cancelled <Pinentry>\n",
	"S ERROR curses.open_tty_for_read 83918929 \nERR 83918929 No such file or directory <Pinentry>\n", "# HELP\nOK\n",
	"INQUIRE QUALITY a\nOK\n", "D %\nOK\n", "D %zz\n", "\n", "", "OK\r\n",
}

func FuzzAssuan(f *testing.F) {
	for _, text := range replies {
		f.Add([]byte(text))
	}
	if len(replies) == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		in := bytes.NewReader(text)
		a := newAssuan(in, io.Discard)
		for range 1 + len(text) {
			if err := a.reply(); err != nil {
				var refused *replyError
				if !errors.As(err, &refused) {
					break
				}
			}
			if len(a.data) > maxData || cap(a.data) != maxData {
				t.Fatalf("%d bytes of data in %d", len(a.data), cap(a.data))
			}
		}
		a.wipe()
		if !bytes.Equal(a.buf[:], make([]byte, maxLine)) {
			t.Error("something is left after wiping")
		}
	})
}

// FuzzEscape holds that what is escaped is one line, and means what it was.
func FuzzEscape(f *testing.F) {
	seeds := []string{"", "a", "%", "a\nb", "\x00\x7f\xff", "%0A"}
	for _, s := range seeds {
		f.Add(s)
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > maxData {
			return
		}
		line := escape(s)
		if strings.ContainsAny(line, "\r\n\x00") {
			t.Fatalf("%q is more than a line", line)
		}
		a, _ := said("")
		if err := a.keep([]byte(line)); err != nil || string(a.data) != s {
			t.Errorf("%q became %q: %v", s, a.data, err)
		}
	})
}
