package message

import (
	"bytes"
	"crypto"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/keys"
)

// TestTLS13Grammar starts from a good message and changes one thing.
func TestTLS13Grammar(t *testing.T) {
	spaces, hash := strings.Repeat(" ", 64), strings.Repeat("h", 32)
	for _, test := range []struct {
		name, msg, reason string
	}{
		{"good", spaces + clientContext + hash, ""},
		{"63 spaces", spaces[1:] + clientContext + hash, "64 spaces"},
		{"65 spaces", spaces + " " + clientContext + hash, "64 spaces"},
		{"a tab among the spaces", spaces[1:] + "\t" + clientContext + hash, "64 spaces"},
		{"zero bytes for spaces", strings.Repeat("\x00", 64) + clientContext + hash, "64 spaces"},
		{"129 bytes", spaces + clientContext + hash[1:], "neither 32 nor 48"},
		{"131 bytes", spaces + clientContext + hash + "h", "neither 32 nor 48"},
		{"SHA-1 transcript", spaces + clientContext + hash[:20], "neither 32 nor 48"},
		{"SHA-512 transcript", spaces + clientContext + hash + hash, "neither 32 nor 48"},
		{"no hash", spaces + clientContext, "neither 32 nor 48"},
		{"two messages", strings.Repeat(spaces+clientContext+hash, 2), "neither 32 nor 48"},
		{"no zero byte", spaces + clientContext[:33] + hash, "context string"},
		{"lower case", spaces + strings.ToLower(clientContext) + hash, "context string"},
		{"TLS 1.4", spaces + strings.Replace(clientContext, "1.3", "1.4", 1) + hash, "context string"},
		{"exporter", spaces + "TLS 1.3, exporter CertificateXXX\x00" + hash, "context string"},
	} {
		_, err := ParseTLS13([]byte(test.msg), Client, keys.ECDSAP256SHA256)
		checkRefusal(t, test.name, err, test.reason)
	}
}

// TestTLS13Result pins that the transcript hash comes out whole and that its
// size names the cipher suite's hash, whatever the scheme.
func TestTLS13Result(t *testing.T) {
	for _, hash := range []crypto.Hash{crypto.SHA256, crypto.SHA384} {
		transcript := bytes.Repeat([]byte{7}, hash.Size())
		msg := slices.Concat(bytes.Repeat([]byte(" "), 64), []byte(serverContext), transcript)
		for _, scheme := range []keys.Scheme{keys.ECDSAP256SHA256, keys.ECDSAP384SHA384, keys.RSAPSSSHA256} {
			got, err := ParseTLS13(msg, Server, scheme)
			if err != nil {
				t.Fatal(err)
			}
			if got.Side != Server || got.Hash != hash || !bytes.Equal(got.TranscriptHash, transcript) {
				t.Errorf("%s, %s: got %+v", scheme, hash, got)
			}
		}
	}
}
