package peer

import (
	"net"
	"path/filepath"
	"testing"
)

func BenchmarkFromConn(b *testing.B) {
	path := filepath.Join(b.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	conn, err := l.AcceptUnix()
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	var identifier Identifier
	b.ReportAllocs()
	for b.Loop() {
		p, err := identifier.FromConn(conn)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Alive(); err != nil {
			b.Fatal(err)
		}
		p.Close()
	}
}
