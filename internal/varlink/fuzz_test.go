package varlink

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"
)

var streams = [][]byte{
	[]byte(good + "\x00"),
	[]byte(good + "\x00" + good + "\x00" + good[:20]),
	[]byte("\x00\x00{}\x00"),
	[]byte(`{"method":"org.varlink.service.GetInfo","oneway":true}` + "\x00" + good + "\x00"),
	[]byte(`{"method":"org.example.test.Count","parameters":{"to":9},"more":true}` + "\x00"),
	[]byte(`{"method":"org.example.test.Echo","parameters":{"text":"\ud800\u0000","note":null}}` + "\x00"),
	bytes.Repeat([]byte("["), 9000),
}

func addStreams(f *testing.F) {
	if len(streams) == 0 {
		f.Fatal("no seeds")
	}
	for _, seed := range streams {
		f.Add(seed)
	}
}

// However the stream is cut into reads, the messages are what lies between NULs.
func FuzzFramer(f *testing.F) {
	addStreams(f)
	f.Fuzz(func(t *testing.T, stream []byte) {
		want := bytes.Split(stream, []byte{0})
		want = want[:len(want)-1]
		for _, from := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream)), iotest.HalfReader(bytes.NewReader(stream))} {
			big := new(budget)
			f := framer{from: from, share: share{of: big, limit: MaxMessage}}
			for i := 0; ; {
				frame, ok := f.frame()
				if ok {
					if i >= len(want) || !bytes.Equal(frame, want[i]) {
						t.Fatalf("message %d of %q: got %q", i, stream, frame)
					}
					f.drop()
					f.settle()
					i++
					continue
				}
				if err := f.fill(); err != nil {
					if err == io.EOF && i < len(want) {
						t.Fatalf("got %d messages of %q, want %d", i, stream, len(want))
					}
					break
				}
				if len(f.buf) > MaxMessage+1 {
					t.Fatalf("the buffer has %d bytes", len(f.buf))
				}
				if got, want := big.taken(), above(len(f.buf)); got != want {
					t.Fatalf("%d bytes are taken for a buffer of %d", got, len(f.buf))
				}
			}
		}
	})
}

// Whatever arrives, the service ends when the stream does, and every message that
// it sends is a reply.
func FuzzServeConn(f *testing.F) {
	addStreams(f)
	service := testService(nil)
	delete(service.Interfaces[0].Methods, "Wait")
	delete(service.Interfaces[0].Methods, "Big")
	f.Fuzz(func(t *testing.T, stream []byte) {
		if bytes.Contains(stream, []byte("Count")) && len(stream) > 200 {
			return // long counts take long
		}
		ours, theirs := net.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			service.ServeConn(context.Background(), theirs)
		}()
		replies := make(chan []byte, 1)
		go func() {
			all, _ := io.ReadAll(io.LimitReader(ours, 1<<20))
			replies <- all
			ours.Close()
		}()
		ours.SetWriteDeadline(time.Now().Add(time.Second))
		ours.Write(stream)
		ours.Close()
		<-ended
		for _, message := range bytes.Split(<-replies, []byte{0}) {
			var r reply
			if len(message) > 0 && json.Valid(message) && json.Unmarshal(message, &r) != nil {
				t.Fatalf("%q got %q", stream, message)
			}
		}
	})
}
