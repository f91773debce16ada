package message

import (
	"crypto/x509"

	"holdfast/internal/keys"
)

const (
	versionTLS12 = 0x0303
	versionTLS13 = 0x0304

	extServerName           = 0
	extExtendedMasterSecret = 23
	extSupportedVersions    = 43
	extRenegotiationInfo    = 0xff01
)

// clientHello reads RFC 5246, section 7.4.1.2. A client that also offers TLS 1.3
// still says 1.2 here.
func (t *Transcript) clientHello(r *reader) bool {
	version := r.number(2)
	r.bytes(randomSize)
	r.vector(1, 0, 32)      // session
	r.vector(2, 2, 1<<16-2) // cipher suites
	r.vector(1, 1, 1<<8-1)  // compression methods
	extensions, ok := extensions(r)
	if !ok || version != versionTLS12 {
		return false
	}
	t.ServerName, ok = serverName(extensions)
	return ok
}

// serverHello reads RFC 5246, section 7.4.1.3.
func (t *Transcript) serverHello(r *reader) bool {
	version := r.number(2)
	r.bytes(randomSize)
	r.vector(1, 0, 32) // session
	r.number(2)        // cipher suite
	compression := r.number(1)
	extensions, ok := extensions(r)
	if !ok || version != versionTLS12 || compression != 0 {
		return false
	}
	if _, later := extensions[extSupportedVersions]; later {
		return false // the version that counts is in there, and is 1.3 or above
	}
	_, t.ExtendedMasterSecret = extensions[extExtendedMasterSecret]
	renegotiation := len(extensions[extRenegotiationInfo]) > 1 // one byte: an empty vector
	return t.ExtendedMasterSecret || !renegotiation
}

// extensions reads the optional extensions at the end of a hello and rejects
// repeated ones: two parsers could each use a different one.
func extensions(r *reader) (map[int][]byte, bool) {
	found := make(map[int][]byte)
	if r.done() {
		return found, true
	}
	list := r.vector(2, 0, 1<<16-1)
	for list.more() {
		kind := list.number(2)
		if _, repeated := found[kind]; repeated {
			return nil, false
		}
		found[kind] = list.vector(2, 0, 1<<16-1).rest
	}
	return found, list.done() && r.done()
}

// serverName reads RFC 6066, section 3. The name goes into audit records, so
// it has to be the ASCII that the section wants.
func serverName(extensions map[int][]byte) (string, bool) {
	body, ok := extensions[extServerName]
	if !ok {
		return "", true
	}
	r := &reader{rest: body}
	list := r.vector(2, 1, 1<<16-1)
	kind := list.number(1)
	name := list.vector(2, 1, 255).rest
	for _, c := range name {
		if c <= ' ' || c > '~' {
			return "", false
		}
	}
	return string(name), kind == 0 && r.done() && list.done()
}

// serverCertificate reads RFC 5246, section 7.4.2.
func (t *Transcript) serverCertificate(r *reader) bool {
	chain, ok := certificates(r)
	t.ServerChain = chain
	return ok
}

func (t *Transcript) clientCertificate(r *reader) bool {
	chain, ok := certificates(r)
	if !ok {
		return false
	}
	leaf, err := x509.ParseCertificate(chain[0])
	t.leaf = leaf
	return err == nil
}

// certificates reads a list of at least one certificate.
func certificates(r *reader) ([][]byte, bool) {
	var chain [][]byte
	list := r.vector(3, 1, MaxSize)
	for list.more() {
		chain = append(chain, list.vector(3, 1, MaxSize).rest)
	}
	return chain, list.done() && r.done()
}

// certificateRequest reads RFC 5246, section 7.4.4. TLS 1.1 and below have no
// signature algorithms here and do not parse.
func (t *Transcript) certificateRequest(r *reader) bool {
	r.vector(1, 1, 1<<8-1) // certificate types
	t.schemes = r.vector(2, 2, 1<<16-2).rest
	authorities := r.vector(2, 0, 1<<16-1)
	for authorities.more() {
		authorities.vector(2, 1, 1<<16-1)
	}
	return len(t.schemes)%2 == 0 && authorities.done() && r.done()
}

// offers reports whether the server takes scheme s.
func (t *Transcript) offers(s keys.Scheme) bool {
	code, ok := map[keys.Scheme]int{
		keys.ECDSAP256SHA256: 0x0403, keys.ECDSAP384SHA384: 0x0503, keys.RSAPSSSHA256: 0x0804,
	}[s]
	list := &reader{rest: t.schemes}
	for ok && list.more() {
		if list.number(2) == code {
			return true
		}
	}
	return false
}
