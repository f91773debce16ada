package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
)

func frame(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// TestRoundTrip: what is written is read, one message after the other, and not a
// byte more is taken.
func TestRoundTrip(t *testing.T) {
	tries := 2
	requests := []wire.Request{
		{ID: 1, Op: wire.Readers, Known: []wire.Reader{{Name: "R", Present: true, Changes: 3}}, Wait: time.Second},
		{ID: 2, Op: wire.Unlock, Reader: "R", Serial: 7, Slot: "9a", Public: []byte{1}, PIN: []byte("123456"), Until: time.Unix(1, 0).UTC()},
	}
	replies := []wire.Reply{
		{ID: 1, Readers: []wire.Reader{{Name: "R"}}, Serial: 7, Firmware: "5.4.3"},
		{ID: 2, Error: &wire.Error{Kind: fault.PINRequired, Message: "m", Hint: "h", Next: fault.Next{Do: fault.Unblock, Card: 7}, Tries: &tries, Unsent: true, RetryAfterMS: 5}},
		{ID: 3, Card: &keys.Card{Serial: 7, Slots: []keys.CardSlot{{Slot: "9a"}}}, Attestation: [][]byte{{1}, {2}}, Signature: []byte{3}},
	}
	var stream bytes.Buffer
	for _, r := range requests {
		if err := wire.Write(&stream, r); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range replies {
		if err := wire.Write(&stream, r); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range requests {
		var got wire.Request
		if err := wire.Read(&stream, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	for _, want := range replies {
		var got wire.Reply
		if err := wire.Read(&stream, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if err := wire.Read(&stream, new(wire.Reply)); err != io.EOF {
		t.Errorf("at the end: got %v, want io.EOF", err)
	}
}

// TestReadRefuses: each bad message is refused, and what follows it is not looked
// at.
func TestReadRefuses(t *testing.T) {
	for name, text := range map[string][]byte{
		"half a length":     {0, 0},
		"half a body":       frame(`{"id":1}`)[:7],
		"no body":           {0, 0, 0, 9},
		"empty":             frame(""),
		"a byte too long":   frame(`{"id":1}` + strings.Repeat(" ", wire.MaxFrame+1-len(`{"id":1}`))),
		"too long":          binary.BigEndian.AppendUint32(nil, wire.MaxFrame+1),
		"as long as it can": {0xff, 0xff, 0xff, 0xff},
		"not JSON":          frame("hello"),
		"two values":        frame(`{"id":1}{"id":2}`),
		"unknown member":    frame(`{"id":1,"colour":"red"}`),
		"unknown inside":    frame(`{"id":1,"error":{"kind":"busy","colour":"red"}}`),
		"wrong type":        frame(`{"id":"1"}`),
		"number too big":    frame(`{"id":1,"serial":4294967296}`),
	} {
		if err := wire.Read(bytes.NewReader(text), new(wire.Reply)); err == nil || err == io.EOF {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
}

// TestReadIsBounded: a length alone makes no room.
func TestReadIsBounded(t *testing.T) {
	got := testing.AllocsPerRun(10, func() {
		_ = wire.Read(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff}), new(wire.Reply))
	})
	if got > 10 {
		t.Errorf("%v allocations for a message that is refused", got)
	}
	if err := wire.Write(io.Discard, wire.Reply{Signature: make([]byte, wire.MaxFrame)}); err == nil {
		t.Error("a message that cannot be read was written")
	}
}

// TestWipe: no secret of a request stays.
func TestWipe(t *testing.T) {
	r := wire.Request{Op: wire.SetUp}
	v := reflect.ValueOf(&r).Elem()
	public := map[string]bool{"Public": true, "Digest": true, "Certificate": true}
	for i := range v.NumField() {
		if v.Field(i).Type() == reflect.TypeFor[[]byte]() {
			v.Field(i).SetBytes([]byte("secret"))
		}
	}
	r.Wipe()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).Type() != reflect.TypeFor[[]byte]() || public[name] {
			continue
		}
		if strings.Trim(string(v.Field(i).Bytes()), "\x00") != "" {
			t.Errorf("%s is not wiped", name)
		}
	}
}

// TestWriteClears: the buffer that was written is cleared afterwards.
func TestWriteClears(t *testing.T) {
	var kept keeper
	if err := wire.Write(&kept, wire.Request{PIN: []byte("123456")}); err != nil {
		t.Fatal(err)
	}
	if strings.Trim(string(kept), "\x00") != "" {
		t.Errorf("the buffer still holds %q", []byte(kept))
	}
}

// A keeper keeps the very bytes that it is given, which no writer should.
type keeper []byte

func (k *keeper) Write(b []byte) (int, error) { *k = b; return len(b), nil }

// TestErrors: kinds, hints and tries come over.
func TestErrors(t *testing.T) {
	tries := 1
	own := &wire.Error{Kind: fault.PINBlocked, Message: "m", Tries: &tries}
	for _, test := range []struct {
		err  error
		want wire.Error
	}{
		{&fault.Error{Kind: fault.DeviceAbsent, Message: "m", Next: fault.Next{Do: fault.InsertCard, Card: 7}}, wire.Error{Kind: fault.DeviceAbsent, Message: "m", Next: fault.Next{Do: fault.InsertCard, Card: 7}}},
		{&fault.Error{Kind: fault.Busy, Message: "m", Hint: "h", RetryAfter: 2 * time.Second}, wire.Error{Kind: fault.Busy, Message: "m", Hint: "h", RetryAfterMS: 2000}},
		{fmt.Errorf("around: %w", own), *own},
		{errors.New("odd"), wire.Error{Kind: fault.Internal, Message: "odd"}},
	} {
		got := wire.FromError(test.err)
		if got == nil || !reflect.DeepEqual(*got, test.want) {
			t.Errorf("%v: got %+v, want %+v", test.err, got, test.want)
		}
		if back := got.Keys(); back.Kind != test.want.Kind || back.RetryAfter.Milliseconds() != test.want.RetryAfterMS || back.Message != got.Error() || back.Next != test.want.Next {
			t.Errorf("%v: came back as %+v", test.err, back)
		}
	}
	if wire.FromError(nil) != nil {
		t.Error("no error became one")
	}
}

func FuzzReply(f *testing.F) {
	if err := wire.Read(bytes.NewReader(frame(`{"id":1}`)), new(wire.Reply)); err != nil {
		f.Fatalf("the seed: %v", err)
	}
	for _, body := range []string{`{"id":1}`, `{"id":1,"error":{"kind":"busy","message":"m"}}`, `{"id":1,"readers":[{"name":"R","present":true,"changes":1,"inUse":false}]}`, `{`, ``} {
		f.Add(frame(body))
	}
	f.Fuzz(func(t *testing.T, stream []byte) { again[wire.Reply](t, stream) })
}

func FuzzRequest(f *testing.F) {
	if err := wire.Read(bytes.NewReader(frame(`{"id":2,"op":"readers"}`)), new(wire.Request)); err != nil {
		f.Fatalf("the seed: %v", err)
	}
	for _, body := range []string{`{"id":1,"op":"sign","slot":"9a","digest":"AAAA"}`, `{"id":2,"op":"readers","known":[],"wait":5}`, `[]`, `null`} {
		f.Add(frame(body))
	}
	f.Fuzz(func(t *testing.T, stream []byte) { again[wire.Request](t, stream) })
}

// again: what can be read can be written, and is then read as the same.
func again[T any](t *testing.T, stream []byte) {
	var first, second T
	if wire.Read(bytes.NewReader(stream), &first) != nil {
		return
	}
	var text bytes.Buffer
	if err := wire.Write(&text, first); err != nil {
		return // a time in a year that JSON has no form for, or escapes that make it too long
	}
	if err := wire.Read(&text, &second); err != nil {
		t.Fatal(err)
	}
	var a, b bytes.Buffer
	if wire.Write(&a, first) != nil || wire.Write(&b, second) != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Errorf("%+v became %+v", first, second)
	}
}
