package card

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// A script answers commands in turn, and keeps what it was sent.
type script struct {
	answers []answer
	sent    [][]byte
	given   [][]byte // the very slices
}

type answer struct {
	data   []byte
	status uint16
	err    error
}

func (s *script) Transmit(command []byte) ([]byte, uint16, error) {
	s.sent, s.given = append(s.sent, bytes.Clone(command)), append(s.given, command)
	if len(s.answers) == 0 {
		return nil, success, nil
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	return a.data, a.status, a.err
}

func TestSend(t *testing.T) {
	s := &script{answers: []answer{{status: success}, {status: success}, {data: []byte("answer"), status: success}}}
	data := bytes.Repeat([]byte{0x42}, 600)
	got, err := send(s, 0xdb, 0x3f, 0xff, data)
	if err != nil || string(got) != "answer" || len(s.sent) != 3 {
		t.Fatalf("%q, %v after %d commands", got, err, len(s.sent))
	}
	var whole []byte
	for i, c := range s.sent {
		class, size := byte(0x10), 255
		if i == 2 {
			class, size = 0, 90
		}
		if !bytes.Equal(c[:5], []byte{class, 0xdb, 0x3f, 0xff, byte(size)}) || len(c) != 5+size {
			t.Errorf("command %d begins with %x and has %d bytes", i, c[:5], len(c))
		}
		whole = append(whole, c[5:]...)
	}
	if !bytes.Equal(whole, data) {
		t.Error("the data was changed on its way")
	}
	for i, c := range s.given {
		if !bytes.Equal(c, make([]byte, len(c))) {
			t.Errorf("command %d was not cleared", i)
		}
	}
}

func TestSendFails(t *testing.T) {
	s := &script{answers: []answer{{status: 0x6a80}}}
	_, err := send(s, 0xdb, 0, 0, make([]byte, 600))
	if status, ok := statusOf(err); !ok || status != 0x6a80 || len(s.sent) != 1 {
		t.Errorf("%v after %d commands", err, len(s.sent))
	}
	broken := errors.New("broken")
	if _, err := send(&script{answers: []answer{{err: broken}}}, 0xcb, 0, 0, nil); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestPadded(t *testing.T) {
	if got := padded([]byte("123456"), []byte("12345678")); string(got) != "123456\xff\xff12345678" {
		t.Errorf("%q", got)
	}
	if got := padded(nil, []byte("123456789")); string(got) != strings.Repeat("\xff", 8)+"12345678" {
		t.Errorf("%q", got)
	}
}

func TestGet(t *testing.T) {
	s := &script{answers: []answer{{data: tlv(0x53, []byte("object")), status: success}, {status: statusNotFound}, {data: []byte{0x53, 9}, status: success}, {status: statusSecurity}}}
	if got, err := get(s, objectPrinted); err != nil || string(got) != "object" || !bytes.Equal(s.sent[0], []byte{0, 0xcb, 0x3f, 0xff, 5, 0x5c, 3, 0x5f, 0xc1, 9}) {
		t.Errorf("%q, %v by %x", got, err, s.sent[0])
	}
	if got, err := get(s, objectPrinted); err != nil || got != nil {
		t.Errorf("an object that is not there: %q, %v", got, err)
	}
	if got, err := get(s, objectPrinted); err == nil {
		t.Errorf("half an object: %q", got)
	}
	if got, err := get(s, objectPrinted); err == nil {
		t.Errorf("without the PIN: %q", got)
	}
}

func TestIdentity(t *testing.T) {
	good := func() []answer {
		return []answer{{status: success}, {data: []byte{5, 4, 3}, status: success}, {data: []byte{0, 0, 1, 2}, status: success}}
	}
	version, serial, err := identity(&script{answers: good()})
	if err != nil || !bytes.Equal(version, []byte{5, 4, 3}) || serial != 258 {
		t.Errorf("%v %d %v", version, serial, err)
	}
	for name, change := range map[string]func([]answer){
		"no PIV":       func(a []answer) { a[0].status = statusNotFound },
		"no version":   func(a []answer) { a[1].status = statusNoInstruction },
		"two parts":    func(a []answer) { a[1].data = a[1].data[:2] },
		"empty":        func(a []answer) { a[1].data = nil },
		"no serial":    func(a []answer) { a[2].status = statusNoInstruction },
		"short serial": func(a []answer) { a[2].data = a[2].data[:3] },
		"long serial":  func(a []answer) { a[2].data = make([]byte, 5) },
	} {
		answers := good()
		change(answers)
		if _, _, err := identity(&script{answers: answers}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
