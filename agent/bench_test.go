package agent_test

import (
	"testing"

	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// BenchmarkSign is what a signature costs besides the device: the software key's
// own signature is in it.
func BenchmarkSign(b *testing.B) {
	r := newRig(b)
	r.create("alice", keys.TLSClient)
	conn := r.dial()
	in := agentwire.SignTLSClientParameters{Key: "alice", Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client")}
	var reply agentwire.SignReply
	for b.Loop() {
		if err := conn.Call(b.Context(), agentwire.SignTLSClient, in, &reply); err != nil {
			b.Fatal(err)
		}
	}
}
