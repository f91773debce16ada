package proxy

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stranger is a uid that has no ticket.
const stranger = 61234

// dialAs connects to the proxy with a socket of another uid.
func (r *rig) dialAs(uid int) net.Conn {
	r.t.Helper()
	var conn net.Conn
	var err error
	var dialing sync.WaitGroup
	dialing.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err = unix.Setfsuid(uid); err == nil { // the owner of new sockets
			conn, err = net.Dial("tcp", r.address)
			err = errors.Join(err, unix.Setfsuid(os.Getuid()))
		}
	})
	dialing.Wait()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// frame is a frame of HTTP/2 (RFC 9113, section 4.1).
func frame(kind, flags byte, stream uint32, payload string) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(head, flags), stream), payload...)
}

// floods are frames without end that cost the sender little.
var floods = map[string]func(i int) []byte{
	"PING": func(int) []byte { return frame(6, 0, 0, "8 octets") },
	"RST_STREAM": func(i int) []byte {
		id := uint32(2*i + 1)
		return append(frame(1, 5, id, "\x82\x87\x84\x41\x01x"), frame(3, 0, id, "\x00\x00\x00\x08")...)
	},
	"SETTINGS": func(int) []byte { return frame(4, 0, 0, "") },
}

// flood sends frames until the connection is closed, and returns how many bytes.
func flood(conn net.Conn, next func(int) []byte) (sent int) {
	var reading sync.WaitGroup
	defer reading.Wait()
	defer conn.Close()
	reading.Go(func() { io.Copy(io.Discard, conn) })
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		return 0
	}
	batch := frame(4, 0, 0, "")
	for i := 0; sent < maxFlood; i++ {
		if batch = append(batch, next(i)...); len(batch) < 8<<10 {
			continue
		}
		n, err := conn.Write(batch)
		if sent += n; err != nil {
			return sent
		}
		batch = batch[:0]
	}
	return sent
}

// maxFlood is more than the proxy's budget and the buffers of both sockets hold.
const maxFlood = 64 << 20

// A uid without a ticket can send the proxy only so many frames, over any number of
// connections. Others, those without a ticket too, are served meanwhile.
func TestFloodsOfStrangers(t *testing.T) {
	for name, next := range floods {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ok)
			config := r.config("prod")
			config.NextProtos = []string{"h2"}
			total, connections := 0, 0
			for total < maxFlood { // until a connection gets no further than its handshake
				connections++
				conn := tls.Client(r.dialAs(stranger), config)
				if err := conn.Handshake(); err != nil {
					break
				}
				total += flood(conn, next)
			}
			if total >= maxFlood {
				t.Errorf("a uid without a ticket sent %d bytes", total)
			}
			t.Logf("%d bytes over %d connections", total, connections)
			other := tls.Client(r.dialAs(stranger+1), config)
			if err := other.Handshake(); err != nil {
				t.Errorf("another uid: %v", err)
			}
			r.do(r.client("prod", true), "GET", "/api", nil, "Authorization", "Bearer "+r.ticket("prod")).want(t, 200)
		})
	}
}

// A budget fills up again, and is full for a uid that it has forgotten.
func TestBudgetOfStrangers(t *testing.T) {
	var s strangers
	now := time.Now()
	spend := func(uid uint32) (bytes int) {
		for s.spend(uid, 1<<10, now) {
			bytes += 1 << 10
		}
		return bytes
	}
	if got := spend(1); got != int(perStranger.burst) {
		t.Errorf("a uid may send %d bytes at once", got)
	}
	now = now.Add(2 * time.Second)
	if got := spend(1); got != 2*int(perStranger.perSecond) {
		t.Errorf("after two seconds: %d bytes", got)
	}
	total := 0
	for uid := range uint32(4 * maxBudgets) {
		total += spend(100_000 + uid)
	}
	if total > int(allStrangers.burst) {
		t.Errorf("many uids may send %d bytes at once", total)
	}
	if len(s.perUID) > maxBudgets {
		t.Errorf("%d budgets are remembered", len(s.perUID))
	}
	now = now.Add(time.Hour)
	if got := spend(1); got != int(perStranger.burst) {
		t.Errorf("after an hour: %d bytes", got)
	}
}
