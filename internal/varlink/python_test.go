package varlink

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pythonClient is an independent client: it uses only Python's standard library.
const pythonClient = `
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
f = s.makefile("rb")

def send(**message):
    s.sendall(json.dumps(message).encode() + b"\0")

def receive():
    data = b""
    while not data.endswith(b"\0"):
        byte = f.read(1)
        if not byte:
            sys.exit("connection closed after %r" % data)
        data += byte
    return json.loads(data[:-1])

def call(method, **parameters):
    send(method=method, parameters=parameters)
    return receive()

print(call("org.varlink.service.GetInfo")["parameters"]["interfaces"])
print(call("org.varlink.service.GetInterfaceDescription", interface="org.example.test")["parameters"]["description"].split()[1])
print(call("org.example.test.Echo", text="gr\u00fc\u00df \U0001F511")["parameters"])
print(call("org.example.test.Nothing")["error"])
send(method="org.example.test.Count", parameters={"to": 3}, more=True)
print([receive().get("continues", False) for _ in range(3)])
`

func TestPythonClient(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = testService(nil).ServeConn(context.Background(), conn)
		}
		ended <- err
	}()
	python := exec.Command("python3", "-c", pythonClient, socket)
	python.Env = append(os.Environ(), "PYTHONIOENCODING=utf-8")
	out, err := python.CombinedOutput()
	if err != nil {
		t.Fatalf("python3: %v\n%s", err, out)
	}
	want := strings.Join([]string{
		"['org.varlink.service', 'org.example.test']",
		"org.example.test",
		"{'text': 'gr\u00fc\u00df \U0001F511'}",
		"org.varlink.service.MethodNotFound",
		"[True, True, False]",
	}, "\n") + "\n"
	if string(out) != want {
		t.Errorf("\ngot  %s\nwant %s", out, want)
	}
	if err := receive(t, ended, "end"); err != nil {
		t.Errorf("ServeConn: %v", err)
	}
}
