// Package message holds the grammars of the messages that a TLS key may sign: the inputs of
// TLS 1.3 and TLS 1.2 handshake signatures and of PKCS #10 certificate requests.
// The agent signs nothing that one of its parsers has not accepted, so that a
// signature made for one protocol is never useful in another.
//
// Start at [Classify], which names the grammar of a message, and at the strict
// parsers that the agent uses before it signs: [ParseTLS13], [ParseTLS12Client],
// [ParseTLS12Server] and [ParseCertificateRequest]. No input is accepted by two
// of them, and none accepts a digest.
//
// Errors are [fault.Error] values: wrong-purpose for a well-formed message of
// another kind, bad-request with the reason for everything else. They never
// repeat bytes of the message.
//
// A well-formed message does not prove where it comes from. The input of a TLS 1.3 CertificateVerify ends in a hash
// that says neither which server is at the other end nor that the handshake
// exists at all; package destination verifies that with the caller's evidence.
package message

import (
	"fmt"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// A Kind names one grammar of messages.
type Kind string

// The kinds.
const (
	TLS13Client Kind = "tls13-client"        // client CertificateVerify: RFC 8446, section 4.4.3
	TLS13Server Kind = "tls13-server"        // server CertificateVerify: RFC 8446, section 4.4.3
	TLS12Client Kind = "tls12-client"        // client CertificateVerify: RFC 5246, section 7.4.8
	TLS12Server Kind = "tls12-server"        // ServerKeyExchange: RFC 8422, section 5.4
	CSR         Kind = "certificate-request" // CertificationRequestInfo: RFC 2986, section 4.1
)

// A Side is one end of a TLS connection.
type Side string

// The sides.
const (
	Client Side = "client"
	Server Side = "server"
)

// MaxSize is the longest message that any parser takes, in bytes: what fits,
// in base64, into one message of the agent's socket.
const MaxSize = 192 << 10

// Classify returns the kind of msg, and false when no grammar accepts it. It
// knows no key, so it leaves out what the strict parsers check against one. It
// costs a few microseconds at most.
func Classify(msg []byte) (Kind, bool) {
	if v, err := tls13(msg); err == nil {
		return v.kind(), true
	}
	if _, err := transcript(msg); err == nil {
		return TLS12Client, true
	}
	if _, err := csr(msg); err == nil {
		return CSR, true
	}
	if _, err := serverParams(msg); err == nil {
		return TLS12Server, true
	}
	return "", false
}

// refuse returns the caller's error for msg, which is not a message of kind want for
// the given reason. A message of another kind and a digest have errors of their own:
// callers that are used to other signers send digests.
func refuse(msg []byte, want Kind, reason error) error {
	if kind, ok := Classify(msg); ok && kind != want {
		return &fault.Error{
			Kind:    fault.WrongPurpose,
			Message: fmt.Sprintf("a %s message where a %s message is wanted", kind, want),
			Hint:    "a key signs for the one purpose that it was made for",
		}
	}
	if digestSize(len(msg)) {
		return &fault.Error{
			Kind:    fault.BadRequest,
			Message: fmt.Sprintf("%d bytes are a digest, not a %s message", len(msg), want),
			Hint:    "send the whole message; it is parsed and hashed here",
		}
	}
	return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("not a %s message: %s", want, reason.Error())}
}

// digestSize reports whether n bytes is the size of a digest in common use, the
// MD5 and SHA-1 of TLS 1.1 and below among them (36 bytes together).
func digestSize(n int) bool {
	switch n {
	case 16, 20, 28, 32, 36, 48, 64:
		return true
	}
	return false
}

// checkScheme returns a bad-request error unless s is a scheme that TLS keys
// have here: no SHA-1, no PKCS #1 v1.5 (RFC 8446, section 4.2.3).
func checkScheme(s keys.Scheme) error {
	switch s {
	case keys.ECDSAP256SHA256, keys.ECDSAP384SHA384, keys.RSAPSSSHA256:
		return nil
	}
	return &fault.Error{
		Kind:    fault.BadRequest,
		Message: fmt.Sprintf("TLS messages are not signed with %.40q", s),
		Hint:    fmt.Sprintf("one of %s, %s, %s", keys.ECDSAP256SHA256, keys.ECDSAP384SHA384, keys.RSAPSSSHA256),
	}
}

// malformed is the reason why a message is rejected.
type malformed string

func (m malformed) Error() string { return string(m) }
