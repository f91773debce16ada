package message

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
)

// CertificateRequest is the content of a PKCS #10 CertificationRequestInfo.
type CertificateRequest struct {
	Subject pkix.RDNSequence // unlike pkix.Name, it keeps the order and every attribute
	DNS     []string         // subject alternative names
	IPs     []string
	Emails  []string
	URIs    []string

	public []byte // SubjectPublicKeyInfo, DER
}

// maxCSR is the longest CertificationRequestInfo, in bytes: no machine has a
// thousand names.
const maxCSR = 16 << 10

// ParseCertificateRequest checks a CertificationRequestInfo (RFC 2986, section
// 4.1): canonical DER, version 0, a subject, public (SubjectPublicKeyInfo, DER)
// and attributes, with nothing before, between or behind them.
func ParseCertificateRequest(msg, public []byte) (*CertificateRequest, error) {
	c, err := csr(msg)
	if err != nil {
		return nil, refuse(msg, CSR, err)
	}
	if !bytes.Equal(c.public, public) {
		return nil, refuse(msg, CSR, malformed("it is for another public key"))
	}
	return c, nil
}

func csr(msg []byte) (*CertificateRequest, error) {
	if len(msg) > maxCSR {
		return nil, malformed("it is longer than 16 KiB")
	}
	if !opensLikeCSR(msg) || !canonical(msg, maxDepth) {
		return nil, malformed("it is not canonical DER of a version 0 request")
	}
	if !requestInfo(msg) {
		return nil, malformed("it is not a version, a subject, a public key and attributes")
	}
	c, err := x509.ParseCertificateRequest(unsigned(msg))
	if err != nil {
		return nil, malformed("its subject, public key or extensions cannot be read")
	}
	var subject pkix.RDNSequence
	if _, err := asn1.Unmarshal(c.RawSubject, &subject); err != nil {
		return nil, malformed("its subject cannot be read")
	}
	found := &CertificateRequest{Subject: subject, DNS: c.DNSNames, Emails: c.EmailAddresses, public: c.RawSubjectPublicKeyInfo}
	for _, ip := range c.IPAddresses {
		found.IPs = append(found.IPs, ip.String())
	}
	for _, uri := range c.URIs {
		found.URIs = append(found.URIs, uri.String())
	}
	return found, nil
}

// opensLikeCSR reports whether msg is one whole SEQUENCE that starts with the
// INTEGER 0 and another SEQUENCE. No CertificationRequestInfo lacks that, and
// [ParseTLS12Server] refuses everything that has it.
func opensLikeCSR(msg []byte) bool {
	_, body, ok := expect(&msg, tagSequence)
	return ok && len(msg) == 0 && bytes.HasPrefix(body, []byte{tagInteger, 1, 0, tagSequence})
}

// requestInfo checks the outer grammar, which encoding/asn1 would let end with
// further elements.
func requestInfo(msg []byte) bool {
	_, body, _ := expect(&msg, tagSequence)
	_, _, version := expect(&body, tagInteger)
	_, subject, ok := expect(&body, tagSequence)
	_, _, key := expect(&body, tagSequence)
	_, attributes, last := expect(&body, tagAttributes)
	return version && ok && key && last && len(body) == 0 && name(subject) && attributeList(attributes)
}

// name checks an RDNSequence: sets of pairs (RFC 5280, section 4.1.2.4).
func name(in []byte) bool {
	for len(in) > 0 {
		_, set, ok := expect(&in, tagSet)
		if !ok || len(set) == 0 {
			return false
		}
		for len(set) > 0 {
			_, pair, ok := expect(&set, tagSequence)
			_, _, oid := expect(&pair, tagOID)
			_, _, _, rest, value := element(pair)
			if !ok || !oid || !value || len(rest) > 0 {
				return false
			}
		}
	}
	return true
}

// attributeList checks a series of pairs of an object identifier and a set
// (RFC 2986, section 4.1).
func attributeList(in []byte) bool {
	for len(in) > 0 {
		_, pair, ok := expect(&in, tagSequence)
		_, _, oid := expect(&pair, tagOID)
		_, _, set := expect(&pair, tagSet)
		if !ok || !oid || !set || len(pair) > 0 {
			return false
		}
	}
	return true
}

// unsigned wraps a CertificationRequestInfo in a CertificationRequest with an
// empty signature, which is the form that crypto/x509 reads.
func unsigned(info []byte) []byte {
	const ecdsaWithSHA256 = "\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"
	const emptyBits = "\x03\x01\x00"
	content := append(append([]byte(nil), info...), ecdsaWithSHA256+emptyBits...)
	wrapped, err := asn1.Marshal(asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: content})
	if err != nil {
		return nil // x509 then rejects it
	}
	return wrapped
}
