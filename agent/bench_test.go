package agent_test

import (
	"testing"

	"holdfast/agent/keys"
	"holdfast/agent/wire"
)

// BenchmarkSign is what a signature costs besides the device: the software key's
// own signature is in it.
func BenchmarkSign(b *testing.B) {
	r := newRig(b)
	r.create("alice", keys.TLSClient)
	conn := r.dial()
	in := wire.SignTLSClientParameters{Key: "alice", Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client")}
	var reply wire.SignReply
	for b.Loop() {
		if err := conn.Call(b.Context(), wire.SignTLSClient, in, &reply); err != nil {
			b.Fatal(err)
		}
	}
}
