package varlink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const testDescription = `interface org.example.test
method Echo(text: string, note: ?string) -> (text: string)
method Wait() -> ()
method Count(to: int) -> (n: int)
method Fail() -> ()
method Silent() -> ()
method Big(size: int) -> (text: string)
method Planned() -> ()
`

type echo struct {
	Text string `json:"text"`
	Note string `json:"note,omitempty"`
}

type number struct {
	N int `json:"n"`
}

var errOwn = errors.New("own error")

// testService has a method for each way in which a call can go. Events of Wait
// arrive on the channel.
func testService(events chan<- string) *Service {
	return &Service{
		Vendor: "Example", Product: "Test", Version: "1", URL: "https://example.org",
		Interfaces: []Interface{{
			Name:        "org.example.test",
			Description: testDescription,
			Methods: map[string]Method{
				"Echo":    echoMethod,
				"Count":   countMethod,
				"Big":     bigMethod,
				"Wait":    waitMethod(events),
				"Fail":    func(context.Context, *Call) error { return fmt.Errorf("step: %w", errOwn) },
				"Silent":  func(context.Context, *Call) error { return nil },
				"Planned": nil,
			},
		}},
		OnError: func(err error) (string, any) {
			return "org.example.test.Failed", map[string]string{"message": err.Error()}
		},
	}
}

func echoMethod(_ context.Context, call *Call) error {
	var p echo
	if err := call.Decode(&p); err != nil {
		return err
	}
	return call.Reply(echo{Text: p.Text})
}

func countMethod(_ context.Context, call *Call) error {
	var p struct {
		To int `json:"to"`
	}
	if err := call.Decode(&p); err != nil {
		return err
	}
	for n := 1; n < p.To; n++ {
		if err := call.Continue(number{n}); err != nil {
			return err
		}
	}
	return call.Reply(number{p.To})
}

func bigMethod(_ context.Context, call *Call) error {
	var p struct {
		Size int `json:"size"`
	}
	if err := call.Decode(&p); err != nil {
		return err
	}
	return call.Reply(echo{Text: strings.Repeat("x", p.Size)})
}

// waitMethod replies when the context ends or the service stops, and says so.
func waitMethod(events chan<- string) Method {
	return func(ctx context.Context, call *Call) error {
		events <- "started"
		select {
		case <-ctx.Done():
			events <- "cancelled"
			return ctx.Err()
		case <-call.Stopping():
			events <- "stopping"
		}
		return call.Reply(nil)
	}
}

// serve starts ServeConn on one end of a socket pair and returns the other. The
// channel gets what ServeConn returns.
func serve(t *testing.T, ctx context.Context, s *Service) (net.Conn, <-chan error) {
	t.Helper()
	ours, theirs := socketPair(t)
	ended := make(chan error, 1)
	go func() { ended <- s.ServeConn(ctx, theirs) }()
	t.Cleanup(func() { ours.Close() })
	return ours, ended
}

func socketPair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("no %s within 30 s", what)
	}
	panic("unreachable")
}

// exchange writes raw bytes and returns the next message.
func exchange(t *testing.T, conn net.Conn, raw string) string {
	t.Helper()
	if _, err := conn.Write([]byte(raw)); err != nil {
		t.Fatal(err)
	}
	return message(t, conn)
}

func message(t *testing.T, conn net.Conn) string {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	var got []byte
	for one := make([]byte, 1); ; {
		if _, err := conn.Read(one); err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		if one[0] == 0 {
			return string(got)
		}
		got = append(got, one[0])
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCallEcho(t *testing.T) {
	raw, ended := serve(t, context.Background(), testService(nil))
	c := NewConn(raw)
	for range 3 {
		var got echo
		if err := c.Call(context.Background(), "org.example.test.Echo", echo{Text: "a<b"}, &got); err != nil {
			t.Fatal(err)
		}
		if got.Text != "a<b" {
			t.Errorf("got %q, want a<b", got.Text)
		}
	}
	c.Close()
	if err := receive(t, ended, "end"); err != nil {
		t.Errorf("ServeConn after a close: %v", err)
	}
}

// Every way to call it wrongly begins from this request, which is answered.
const good = `{"method":"org.example.test.Echo","parameters":{"text":"hi"}}`

func TestReplies(t *testing.T) {
	const invalid = `{"error":"org.varlink.service.InvalidParameter","parameters":{"parameter":%q}}`
	bad := func(member string) string { return fmt.Sprintf(invalid, member) }
	tests := []struct{ name, request, want string }{
		{"good", good, `{"parameters":{"text":"hi"}}`},
		{"space", "\n " + good + " ", `{"parameters":{"text":"hi"}}`},
		{"null for what is optional", `{"method":"org.example.test.Echo","parameters":{"text":"hi","note":null},"more":null}`, `{"parameters":{"text":"hi"}}`},
		{"unknown member", `{"method":"org.example.test.Echo","parameters":{"text":"hi","limit":1}}`, bad("limit")},
		{"repeated member", `{"method":"org.example.test.Echo","parameters":{"text":"hi","text":"ho"}}`, bad("text")},
		{"other capitals", `{"method":"org.example.test.Echo","parameters":{"Text":"hi"}}`, bad("Text")},
		{"wrong type", `{"method":"org.example.test.Echo","parameters":{"text":1}}`, bad("text")},
		{"null", `{"method":"org.example.test.Echo","parameters":{"text":null}}`, bad("text")},
		{"missing member", `{"method":"org.example.test.Echo","parameters":{}}`, bad("text")},
		{"no parameters", `{"method":"org.example.test.Echo"}`, bad("text")},
		{"parameters no object", `{"method":"org.example.test.Echo","parameters":["text"]}`, bad("parameters")},
		{"deep parameters", `{"method":"org.example.test.Echo","parameters":` + strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40) + `}`, bad("parameters")},
		{"no method", `{}`, bad("method")},
		{"empty method", `{"method":""}`, bad("method")},
		{"method without interface", `{"method":"Echo"}`, bad("method")},
		{"method no string", `{"method":7}`, bad("method")},
		{"unknown member of the request", `{"method":"org.example.test.Echo","limit":1}`, bad("limit")},
		{"member of replies", `{"method":"org.example.test.Echo","continues":true}`, bad("continues")},
		{"method twice", `{"method":"a.b","method":"org.example.test.Echo"}`, bad("method")},
		{"Method", `{"Method":"org.example.test.Echo"}`, bad("Method")},
		{"more no bool", `{"method":"org.example.test.Echo","more":1}`, bad("more")},
		{"upgrade", `{"method":"org.example.test.Echo","upgrade":true}`, bad("upgrade")},
		{"unknown interface", `{"method":"org.example.other.Echo"}`, `{"error":"org.varlink.service.InterfaceNotFound","parameters":{"interface":"org.example.other"}}`},
		{"unknown method", `{"method":"org.example.test.Nothing"}`, `{"error":"org.varlink.service.MethodNotFound","parameters":{"method":"org.example.test.Nothing"}}`},
		{"planned method", `{"method":"org.example.test.Planned"}`, `{"error":"org.varlink.service.MethodNotImplemented","parameters":{"method":"org.example.test.Planned"}}`},
		{"unknown service method", `{"method":"org.varlink.service.Nothing"}`, `{"error":"org.varlink.service.MethodNotFound","parameters":{"method":"org.varlink.service.Nothing"}}`},
		{"continue without more", `{"method":"org.example.test.Count","parameters":{"to":2}}`, `{"error":"org.varlink.service.ExpectedMore","parameters":{}}`},
		{"own error", `{"method":"org.example.test.Fail"}`, `{"error":"org.example.test.Failed","parameters":{"message":"step: own error"}}`},
		{"no reply", `{"method":"org.example.test.Silent"}`, `{"error":"org.example.test.Failed","parameters":{"message":"org.example.test.Silent returned without a reply"}}`},
		{"reply over the limit", `{"method":"org.example.test.Big","parameters":{"size":300000}}`, `{"error":"org.example.test.Failed","parameters":{"message":"encode reply of org.example.test.Big: message over the limit of 262144 bytes"}}`},
		{"info", `{"method":"org.varlink.service.GetInfo"}`, `{"parameters":{"vendor":"Example","product":"Test","version":"1","url":"https://example.org","interfaces":["org.varlink.service","org.example.test"]}}`},
		{"info with parameters", `{"method":"org.varlink.service.GetInfo","parameters":{"a":1}}`, bad("a")},
		{"description of nothing", `{"method":"org.varlink.service.GetInterfaceDescription","parameters":{"interface":"a.b"}}`, `{"error":"org.varlink.service.InterfaceNotFound","parameters":{"interface":"a.b"}}`},
	}
	conn, _ := serve(t, context.Background(), testService(nil))
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := exchange(t, conn, test.request+"\x00"); got != test.want {
				t.Errorf("\ngot  %s\nwant %s", got, test.want)
			}
			// The refusal of one request does not touch the next one.
			if got, want := exchange(t, conn, good+"\x00"), `{"parameters":{"text":"hi"}}`; got != want {
				t.Errorf("afterwards: got %s, want %s", got, want)
			}
		})
	}
}

func TestSecondReply(t *testing.T) {
	failures := make(chan error, 2)
	s := testService(nil)
	s.Interfaces[0].Methods["Wait"] = func(_ context.Context, call *Call) error {
		err := call.Reply(nil)
		failures <- call.Reply(number{2})
		failures <- call.Continue(number{3})
		return err
	}
	conn, _ := serve(t, context.Background(), s)
	request := `{"method":"org.example.test.Wait","more":true}` + "\x00"
	if got, want := exchange(t, conn, request), `{"parameters":{}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for range 2 {
		if err := receive(t, failures, "second reply"); err == nil {
			t.Error("a reply after the final one was sent")
		}
	}
	if got, want := exchange(t, conn, good+"\x00"), `{"parameters":{"text":"hi"}}`; got != want {
		t.Errorf("next call: got %s, want %s", got, want)
	}
}

// Without OnError an error that has no name on the wire ends the connection.
func TestNoOnError(t *testing.T) {
	s := testService(nil)
	s.OnError = nil
	conn, ended := serve(t, context.Background(), s)
	conn.Write([]byte(`{"method":"org.example.test.Fail"}` + "\x00"))
	if err := receive(t, ended, "end"); !errors.Is(err, errOwn) {
		t.Errorf("got %v, want %v", err, errOwn)
	}
}

func TestInterfaceDescriptions(t *testing.T) {
	conn, _ := serve(t, context.Background(), testService(nil))
	c := NewConn(conn)
	for name, want := range map[string]string{"org.example.test": testDescription, ServiceInterface: serviceDescription} {
		var got descriptionReply
		if err := c.Call(context.Background(), ServiceInterface+".GetInterfaceDescription", descriptionParameters{name}, &got); err != nil {
			t.Fatal(err)
		}
		if got.Description != want {
			t.Errorf("%s: got %q, want %q", name, got.Description, want)
		}
	}
}

func TestOneway(t *testing.T) {
	s := testService(nil)
	var failed []string
	s.OnError = func(err error) (string, any) {
		failed = append(failed, err.Error())
		return "", nil
	}
	conn, _ := serve(t, context.Background(), s)
	for _, method := range []string{"Echo", "Fail", "Silent", "Nothing"} {
		request := fmt.Sprintf(`{"method":"org.example.test.%s","parameters":{"text":""},"oneway":true,"more":true}`, method)
		if got, want := exchange(t, conn, request+"\x00"+good+"\x00"), `{"parameters":{"text":"hi"}}`; got != want {
			t.Errorf("%s: got %s, want the reply to the next call, %s", method, got, want)
		}
	}
	// The service gets the error in any case.
	if got, want := fmt.Sprint(failed), "[step: own error org.example.test.Silent returned without a reply]"; got != want {
		t.Errorf("OnError got %s, want %s", got, want)
	}
}

func TestCallMore(t *testing.T) {
	conn, _ := serve(t, context.Background(), testService(nil))
	var got []string
	err := NewConn(conn).CallMore(context.Background(), "org.example.test.Count", map[string]int{"to": 3},
		func(reply json.RawMessage, continues bool) error {
			got = append(got, fmt.Sprint(string(reply), continues))
			return nil
		})
	want := []string{`{"n":1}true`, `{"n":2}true`, `{"n":3}false`}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
