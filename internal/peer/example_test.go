package peer_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"holdfast/internal/peer"
)

func Example() {
	directory, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(directory, "s"), Net: "unix"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	client, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	var identifier peer.Identifier // one for the life of the service
	conn, err := listener.AcceptUnix()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	caller, err := identifier.FromConn(conn)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer caller.Close()
	fmt.Println("it is us:", caller.UID == uint32(os.Geteuid()), caller.PID == int32(os.Getpid()))
	fmt.Println("alive:", caller.Alive() == nil)
	// Output:
	// it is us: true true
	// alive: true
}
