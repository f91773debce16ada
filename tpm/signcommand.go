package tpm

import (
	"encoding/binary"
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// TPM2_Sign is laid out by hand (TPM 2.0 Part 3, section 20.2): go-tpm's
// reflection costs more time than the socket does. A test compares the bytes with
// go-tpm's.

// appendSign appends TPM2_Sign with the password session of an empty
// authorisation value, or with s when that is not nil.
func appendSign(b []byte, handle tpm2.TPMHandle, name []byte, s *session, su suite, digest []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, uint16(tpm2.TPMSTSessions))
	b = be.AppendUint32(b, 0) // the size, once it is known
	b = be.AppendUint32(b, uint32(tpm2.TPMCCSign))
	b = be.AppendUint32(b, uint32(handle))
	if s == nil {
		b = be.AppendUint32(b, 9)
		b = be.AppendUint32(b, uint32(tpm2.TPMRSPW))
		b = append(b, 0, 0, 0, 0, 0) // no nonce, no attributes, no value
		b = appendSignParameters(b, su, digest)
	} else {
		b = appendSession(b, name, s, su, digest)
	}
	be.PutUint32(b[2:], uint32(len(b)))
	return b
}

// appendSession appends the authorisation area of s and the parameters that it
// authorises.
func appendSession(b, name []byte, s *session, su suite, digest []byte) []byte {
	be := binary.BigEndian
	var room [96]byte
	parameters := appendSignParameters(room[:0], su, digest)
	mac := s.commandMAC(commandHash(tpm2.TPMCCSign, parameters, name))
	b = be.AppendUint32(b, uint32(4+2+nonceSize+1+2+len(mac)))
	b = be.AppendUint32(b, uint32(s.handle))
	b = be.AppendUint16(b, nonceSize)
	b = append(b, s.nonceCaller[:]...)
	b = append(b, s.attrs)
	b = be.AppendUint16(b, uint16(len(mac)))
	b = append(b, mac...)
	return append(b, parameters...)
}

// appendSignParameters appends digest, scheme and the ticket that a key without
// restrictions does not need.
func appendSignParameters(b []byte, su suite, digest []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, uint16(len(digest)))
	b = append(b, digest...)
	b = be.AppendUint16(b, uint16(su.alg))
	b = be.AppendUint16(b, uint16(su.hash))
	b = be.AppendUint16(b, uint16(tpm2.TPMSTHashCheck))
	b = be.AppendUint32(b, uint32(tpm2.TPMRHNull))
	return be.AppendUint16(b, 0)
}

// A signReply is the body of a successful reply to TPM2_Sign. Its fields alias
// the reply.
type signReply struct {
	parameters []byte
	nonce      []byte
	attrs      byte
	mac        []byte
}

// parseSignReply parses a reply whose header has been checked.
func parseSignReply(reply []byte) (signReply, error) {
	c := cursor{rest: reply[headerSize:]}
	size := c.u32()
	if size > maxReply {
		return signReply{}, fmt.Errorf("%w: %d bytes of parameters", errMalformed, size)
	}
	r := signReply{parameters: c.take(int(size))}
	r.nonce = c.sized()
	r.attrs = c.u8()
	r.mac = c.sized()
	return r, c.end()
}

// checkPassword checks that the reply's authorisation area is empty, as for a password
// session.
func (r signReply) checkPassword() error {
	if len(r.nonce) != 0 || r.attrs != continueSession || len(r.mac) != 0 {
		return fmt.Errorf("%w: the authorisation area", errMalformed)
	}
	return nil
}

// maxRSA is the longest RSA signature, in bytes.
const maxRSA = 512

// parseSignature reads a TPMT_SIGNATURE of suite su (TPM 2.0 Part 2, section
// 11.3.4) and returns it in the form of package keys.
func parseSignature(parameters []byte, su suite) ([]byte, error) {
	c := cursor{rest: parameters}
	alg, hash := tpm2.TPMAlgID(c.u16()), tpm2.TPMAlgID(c.u16())
	if !c.bad && (alg != su.alg || hash != su.hash) {
		return nil, fmt.Errorf("%w: a signature of another scheme", errMalformed)
	}
	if su.alg == tpm2.TPMAlgECDSA {
		r, s := c.sized(), c.sized()
		if err := c.end(); err != nil {
			return nil, err
		}
		return ecdsaDER(r, s)
	}
	signature := c.sized()
	if err := c.end(); err != nil {
		return nil, err
	}
	if len(signature) == 0 || len(signature) > maxRSA {
		return nil, fmt.Errorf("%w: an RSA signature of %d bytes", errMalformed, len(signature))
	}
	return append([]byte(nil), signature...), nil
}

// maxInteger is the longest r or s, in bytes: that of P-384.
const maxInteger = 48

// ecdsaDER encodes r and s as Ecdsa-Sig-Value (RFC 3279, section 2.2.3). Both
// are short enough for lengths of one byte.
func ecdsaDER(r, s []byte) ([]byte, error) {
	if len(r) > maxInteger || len(s) > maxInteger {
		return nil, fmt.Errorf("%w: ECDSA integers of %d and %d bytes", errMalformed, len(r), len(s))
	}
	der := make([]byte, 2, 2+2*(2+1+maxInteger))
	der = appendInteger(der, r)
	der = appendInteger(der, s)
	der[0], der[1] = 0x30, byte(len(der)-2)
	return der, nil
}

// appendInteger appends a DER INTEGER that is not negative.
func appendInteger(der, value []byte) []byte {
	for len(value) > 0 && value[0] == 0 {
		value = value[1:]
	}
	if len(value) == 0 || value[0] >= 0x80 {
		der = append(der, 0x02, byte(len(value)+1), 0)
	} else {
		der = append(der, 0x02, byte(len(value)))
	}
	return append(der, value...)
}
