package message

import (
	"bytes"
	"crypto/x509"

	"holdfast/internal/keys"
)

// Transcript is the handshake that a TLS 1.2 client signs.
type Transcript struct {
	ServerName           string   // the server that the client asked for (SNI), empty when it named none
	ServerChain          [][]byte // the server's certificates, leaf first, DER; not verified
	ExtendedMasterSecret bool     // RFC 7627: the secret is bound to this very handshake

	leaf    *x509.Certificate // the client's own
	schemes []byte            // that the server takes, as they are on the wire
}

// minTranscript is below every transcript and above every other TLS message:
// the two hellos take 87 bytes and a certificate with any key of ours 180.
// Being longer than the longest ServerKeyExchange input keeps the two apart.
const minTranscript = 256

// ParseTLS12Client checks the input of a TLS 1.2 CertificateVerify signature of
// a client (RFC 5246, section 7.4.8): every handshake message so far, in the one
// order that leads there, of a connection that negotiated TLS 1.2, in which the
// server offered scheme s and the client presented a certificate for public
// (SubjectPublicKeyInfo, DER).
//
// Renegotiation without extended master secret is refused: there a server can
// pass the client's signature on to another server (RFC 7627, section 1).
func ParseTLS12Client(msg, public []byte, s keys.Scheme) (*Transcript, error) {
	t, err := transcript(msg)
	if err != nil {
		return nil, refuse(msg, TLS12Client, err)
	}
	if err := checkScheme(s); err != nil {
		return nil, err
	}
	if !bytes.Equal(t.leaf.RawSubjectPublicKeyInfo, public) {
		return nil, refuse(msg, TLS12Client, malformed("the client certificate in it is for another key"))
	}
	if !t.offers(s) {
		return nil, refuse(msg, TLS12Client, malformed("the server in it does not take "+string(s)))
	}
	return t, nil
}

// The handshake messages of RFC 5246, section 7.4, and RFC 6066, section 8.
const (
	clientHello        = 1
	serverHello        = 2
	certificate        = 11
	serverKeyExchange  = 12
	certificateRequest = 13
	serverHelloDone    = 14
	clientKeyExchange  = 16
	certificateStatus  = 22
)

func transcript(msg []byte) (*Transcript, error) {
	if len(msg) < minTranscript || len(msg) > MaxSize {
		return nil, malformed("it is too short or too long for a handshake")
	}
	m, err := split(msg)
	if err != nil {
		return nil, err
	}
	t := &Transcript{}
	for _, step := range []struct {
		parse  func(*reader) bool
		body   []byte
		reason malformed
	}{
		{t.clientHello, m[clientHello], "its ClientHello is not one of TLS 1.2"},
		{t.serverHello, m[serverHello], "its ServerHello does not negotiate TLS 1.2 safely"},
		{t.serverCertificate, m[certificate], "the server's certificate list is malformed"},
		{t.certificateRequest, m[certificateRequest], "its CertificateRequest is malformed"},
		{t.clientCertificate, m[certificate+fromClient], "it holds no readable client certificate"},
	} {
		if !step.parse(&reader{rest: step.body}) {
			return nil, step.reason
		}
	}
	return t, nil
}

// fromClient is added to the type of the second Certificate message, so that
// one map holds both.
const fromClient = 256

// split takes a transcript apart into its messages, which must come in the order
// of RFC 5246, section 7.3. HelloRequest is not part of a transcript, and
// nothing else comes before CertificateVerify.
func split(msg []byte) (map[int][]byte, error) {
	r := &reader{rest: msg}
	messages := make(map[int][]byte)
	for _, expected := range []struct {
		kind     int
		optional bool
	}{
		{kind: clientHello}, {kind: serverHello}, {kind: certificate}, {kind: certificateStatus, optional: true},
		{kind: serverKeyExchange, optional: true}, {kind: certificateRequest}, {kind: serverHelloDone},
		{kind: certificate + fromClient}, {kind: clientKeyExchange},
	} {
		if expected.optional && r.more() && int(r.rest[0]) != expected.kind {
			continue
		}
		if r.number(1) != expected.kind%fromClient {
			return nil, malformed("its handshake messages are not those before a CertificateVerify")
		}
		messages[expected.kind] = r.vector(3, 0, MaxSize).rest
	}
	if !r.done() {
		return nil, malformed("its handshake messages do not end where it ends")
	}
	if len(messages[serverHelloDone]) != 0 || len(messages[clientKeyExchange]) == 0 {
		return nil, malformed("its ServerHelloDone or ClientKeyExchange is malformed")
	}
	return messages, nil
}
