package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"holdfast/client/broker/ticket"
	"holdfast/client/profile"
	"holdfast/internal/peer"
	"holdfast/test/pace"
)

// A setting is what a broker in a role needs to know.
type setting struct {
	Cluster   string // address
	ClusterCA []byte
	Socket    string // where it gives tickets for the profile prod
}

// A place is where that broker serves.
type place struct {
	Address string
	CA      []byte
}

// playBroker is a process with nothing but the proxy in it, so that its memory can
// be looked at.
func playBroker() error {
	var s setting
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return err
	}
	tickets := ticket.New(ticket.Options{})
	own, ca := identity()
	p := New(Options{
		Certificate: own, Tickets: tickets, Pools: newPools(s.Cluster, s.ClusterCA),
		Profile: func(name string) (*profile.Profile, bool) {
			return &profile.Profile{Name: name, Cluster: profile.Cluster{Server: "https://cluster.example"}}, true
		},
		Allowed: func(ticket.Process, string) bool { return true },
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	u, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.Socket, Net: "unix"})
	if err != nil {
		return err
	}
	go func() {
		issueTo(u, func(caller *peer.Peer) (string, error) {
			got, err := tickets.Issue(caller, "prod")
			return got.Token, err
		})
	}()
	if err := json.NewEncoder(os.Stdout).Encode(place{l.Addr().String(), ca}); err != nil {
		return err
	}
	return p.Serve(l, "")
}

// A broker is a proxy in a process of its own, with a ticket for this one.
type broker struct {
	*rig
	pid   int
	token string
}

func newBroker(t testing.TB, handler http.HandlerFunc) *broker {
	t.Helper()
	server, certificate := cluster(t, handler)
	socket := t.TempDir() + "/s"
	process := start(t, "broker")
	if err := json.NewEncoder(process.In).Encode(setting{server.Listener.Addr().String(), certificate, socket}); err != nil {
		t.Fatal(err)
	}
	line := process.Line()
	var at place
	if err := json.Unmarshal([]byte(line), &at); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	token, err := io.ReadAll(start(t, "plugin", socket).Out)
	if err != nil || len(token) == 0 {
		t.Fatalf("got the ticket %q, %v", token, err)
	}
	r := &rig{t: t, address: at.Address, ca: at.CA, pools: newPools(server.Listener.Addr().String(), certificate)}
	t.Cleanup(r.pools.close)
	return &broker{r, process.Cmd.Process.Pid, string(token)}
}

var residentLine = regexp.MustCompile(`Vm(HWM|RSS):\s+(\d+) kB`)

// resident returns how much memory the process has now and had at most, in MiB.
func (b *broker) resident() (most, now float64) {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.pid))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range residentLine.FindAllSubmatch(text, -1) {
		n, _ := strconv.ParseFloat(string(m[2]), 64)
		if string(m[1]) == "HWM" {
			most = n / 1024
		} else {
			now = n / 1024
		}
	}
	return most, now
}

func (b *broker) request(ctx context.Context, method, path string, body io.Reader) *http.Request {
	b.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "https://"+b.address+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+b.token)
	return r
}

// zeros is a body of n bytes.
func zeros(n int64) io.Reader { return io.LimitReader(zeroReader{}, n) }

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// busy plays a cluster with watches, and with as much to read and write as asked.
func busy(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/watch":
		fmt.Fprintln(w, "ADDED")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case "/down":
		n, _ := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
		buffer := make([]byte, 256<<10)
		for ; n > 0; n -= int64(len(buffer)) {
			if _, err := w.Write(buffer[:min(n, int64(len(buffer)))]); err != nil {
				return
			}
		}
	case "/up":
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	default:
		io.Copy(w, bytes.NewReader(make([]byte, 2000)))
	}
}

// transfer reads and writes n bytes.
func transfer(t testing.TB, do func(method, path string, body io.Reader) *http.Response, n int64) {
	t.Helper()
	down := do("GET", fmt.Sprintf("/down?n=%d", n), nil)
	if got, err := io.Copy(io.Discard, down.Body); got != n || err != nil {
		t.Fatalf("got %d bytes of %d, %v", got, n, err)
	}
	down.Body.Close()
	up := do("POST", "/up", zeros(n))
	if text, err := io.ReadAll(up.Body); string(text) != strconv.FormatInt(n, 10) || err != nil {
		t.Fatalf("the cluster got %s bytes of %d, %v", text, n, err)
	}
	up.Body.Close()
}

// TestMemoryIsFlat opens 500 watches as a controller does, on a few HTTP/2
// connections, or as 500 kubectls do, on a connection each, and sends much data
// both ways beside them.
func TestMemoryIsFlat(t *testing.T) {
	for name, c := range map[string]struct {
		connections int
		limit       float64 // MiB
	}{"of a controller": {2, 40}, "of many kubectls": {500, 70}} {
		t.Run(name, func(t *testing.T) { memoryIsFlat(t, c.connections, c.limit) })
	}
}

func memoryIsFlat(t *testing.T, connections int, limit float64) {
	const watches = 500
	b := newBroker(t, busy)
	clients := make([]*http.Client, connections)
	for i := range clients {
		clients[i] = b.client("prod", true)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range watches {
		b.watch(ctx, clients[i%connections])
	}
	_, before := b.resident()
	client := b.client("prod", true)
	do := func(method, path string, body io.Reader) *http.Response {
		response, err := client.Do(b.request(ctx, method, path, body))
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	size := int64(64 << 20)
	if raceDetector {
		size = 4 << 20 // it takes too long, and says nothing about memory
	}
	for range 3 {
		transfer(t, do, size)
	}
	most, now := b.resident()
	t.Logf("%d watches on %d connections: %.1f MiB; with %d MiB each way: %.1f MiB, at most %.1f", watches, connections, before, 3*size>>20, now, most)
	if !raceDetector && most > limit {
		t.Errorf("%.1f MiB, want at most %.0f", most, limit)
	}
}

// watch opens a watch and waits for its first event. It stays open until ctx ends.
func (b *broker) watch(ctx context.Context, client *http.Client) {
	b.t.Helper()
	response, err := client.Do(b.request(ctx, "GET", "/watch?watch=1", nil))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { response.Body.Close() })
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); line != "ADDED\n" {
		b.t.Fatalf("got %q, %v", line, err)
	}
}

// An upgrade carries much data both ways in little memory too.
func TestMemoryOfUpgradesIsFlat(t *testing.T) {
	b := newBroker(t, switchTo("SPDY/3.1", func(conn *tls.Conn, in *bufio.Reader) { io.Copy(conn, in) }))
	conn := b.dial("prod")
	if err := conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil { // it carries much
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", b.token)
	in := bufio.NewReader(conn)
	if response, err := http.ReadResponse(in, nil); err != nil || response.StatusCode != 101 {
		t.Fatalf("got %v, %v", response, err)
	}
	size := pace.Share[int64](128<<20, 1<<30)
	go func() {
		io.Copy(conn, zeros(size))
		conn.CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, in); n != size || err != nil {
		t.Fatalf("got %d bytes, %v", n, err)
	}
	most, now := b.resident()
	t.Logf("%d MiB each way: %.1f MiB, at most %.1f", size>>20, now, most)
	if !raceDetector && most > 40 {
		t.Errorf("%.1f MiB, want at most 40", most)
	}
}
