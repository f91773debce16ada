package message

import (
	"crypto/ecdh"

	"holdfast/internal/keys"
)

// ServerParams is the input of the signature in a TLS 1.2 ServerKeyExchange.
type ServerParams struct {
	ClientRandom []byte // 32 bytes; all three share msg's memory
	ServerRandom []byte // 32 bytes
	Group        uint16 // the named group of the TLS registry, such as 29 for x25519
	Point        []byte // the server's ephemeral public key
}

const (
	randomSize = 32
	namedCurve = 3 // RFC 8422, section 5.4; explicit curves are long gone
	groupX448  = 30
)

// ParseTLS12Server checks the input of a ServerKeyExchange signature made with
// scheme s (RFC 8422, section 5.4): client_random, server_random and
// ServerECDHParams with a group that is known here and a point of exactly its
// size, on its curve.
func ParseTLS12Server(msg []byte, s keys.Scheme) (*ServerParams, error) {
	p, err := serverParams(msg)
	if err != nil {
		return nil, refuse(msg, TLS12Server, err)
	}
	if err := checkScheme(s); err != nil {
		return nil, err
	}
	return p, nil
}

func serverParams(msg []byte) (*ServerParams, error) {
	r := &reader{rest: msg}
	p := &ServerParams{ClientRandom: r.bytes(randomSize), ServerRandom: r.bytes(randomSize)}
	curve := r.number(1)
	p.Group = uint16(r.number(2))
	p.Point = r.vector(1, 1, 255).rest
	switch {
	case !r.done():
		return nil, malformed("it is not two randoms and ServerECDHParams")
	case curve != namedCurve:
		return nil, malformed("the curve is not a named one")
	case !knownPoint(p.Group, p.Point):
		return nil, malformed("the group is not known or the point is not one of it")
	case opensLikeCSR(msg):
		// The randoms are the parties' own choice: a party could spell the head of
		// a certificate request with them. A random one does so once in 2^56.
		return nil, malformed("it starts like a certificate request")
	}
	return p, nil
}

// knownPoint reports whether point is a public key of group.
func knownPoint(group uint16, point []byte) bool {
	if group == groupX448 {
		return len(point) == 56
	}
	curve, ok := map[uint16]ecdh.Curve{23: ecdh.P256(), 24: ecdh.P384(), 25: ecdh.P521(), 29: ecdh.X25519()}[group]
	if !ok {
		return false
	}
	_, err := curve.NewPublicKey(point)
	return err == nil
}
