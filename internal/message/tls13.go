package message

import (
	"bytes"
	"crypto"

	"holdfast/internal/keys"
)

// CertificateVerify is the input of a TLS 1.3 CertificateVerify signature.
type CertificateVerify struct {
	Side           Side        // the side that signs
	Hash           crypto.Hash // the cipher suite's hash: SHA-256 or SHA-384
	TranscriptHash []byte      // of the handshake up to here, Hash.Size() bytes; shares msg's memory
}

func (v *CertificateVerify) kind() Kind {
	if v.Side == Server {
		return TLS13Server
	}
	return TLS13Client
}

// The parts of RFC 8446, section 4.4.3. The context strings are equally long.
const (
	padding       = 64
	clientContext = "TLS 1.3, client CertificateVerify\x00"
	serverContext = "TLS 1.3, server CertificateVerify\x00"
)

// ParseTLS13 checks the input of a TLS 1.3 CertificateVerify signature that side
// makes with scheme s (RFC 8446, section 4.4.3): exactly 64 spaces, the context
// string of the side, a zero byte and a transcript hash.
//
// The transcript hash is the cipher suite's, not the scheme's: a P-256 key signs
// a 48-byte hash in a TLS_AES_256_GCM_SHA384 handshake. The two sizes that TLS
// 1.3's cipher suites have are accepted with every scheme.
func ParseTLS13(msg []byte, side Side, s keys.Scheme) (*CertificateVerify, error) {
	want := (&CertificateVerify{Side: side}).kind()
	v, err := tls13(msg)
	if err != nil {
		return nil, refuse(msg, want, err)
	}
	if v.Side != side {
		return nil, refuse(msg, want, malformed("the context is the "+string(v.Side)+"'s"))
	}
	if err := checkScheme(s); err != nil {
		return nil, err
	}
	return v, nil
}

func tls13(msg []byte) (*CertificateVerify, error) {
	spaces := len(msg) - len(bytes.TrimLeft(msg, " "))
	if spaces != padding {
		return nil, malformed("it does not start with 64 spaces")
	}
	rest := msg[padding:]
	v := &CertificateVerify{Side: Client}
	hash, ok := bytes.CutPrefix(rest, []byte(clientContext))
	if !ok {
		v.Side = Server
		hash, ok = bytes.CutPrefix(rest, []byte(serverContext))
	}
	if !ok {
		return nil, malformed("the context string is neither the client's nor the server's")
	}
	switch len(hash) {
	case crypto.SHA256.Size():
		v.Hash = crypto.SHA256
	case crypto.SHA384.Size():
		v.Hash = crypto.SHA384
	default:
		return nil, malformed("the transcript hash is neither 32 nor 48 bytes")
	}
	v.TranscriptHash = hash
	return v, nil
}
