package keys

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	_ "crypto/sha256" // the hashes of the schemes below
	_ "crypto/sha512"
	"crypto/x509"
	"fmt"

	"holdfast/internal/fault"
)

// A Scheme is a signature scheme by its name in the TLS registry (RFC 8446,
// section 4.2.3). A key has exactly one.
type Scheme string

// The schemes. RSASSA-PSS salts are as long as the hash.
const (
	ECDSAP256SHA256 Scheme = "ecdsa_secp256r1_sha256"
	ECDSAP384SHA384 Scheme = "ecdsa_secp384r1_sha384"
	RSAPSSSHA256    Scheme = "rsa_pss_rsae_sha256"
	RSAPKCS1SHA256  Scheme = "rsa_pkcs1_sha256"
)

// SchemeFor returns the one scheme of a key of algorithm a made for purpose p.
func SchemeFor(a Algorithm, p Purpose) (Scheme, error) {
	switch {
	case a == ES256:
		return ECDSAP256SHA256, nil
	case a == ES384:
		return ECDSAP384SHA384, nil
	case a == RS256 && p.TLS():
		return RSAPSSSHA256, nil
	case a == RS256:
		return RSAPKCS1SHA256, nil
	}
	return "", &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("algorithm %q has no signature scheme", a)}
}

// Hash returns the scheme's hash function, or 0 for an unknown scheme.
func (s Scheme) Hash() crypto.Hash {
	switch s {
	case ECDSAP256SHA256, RSAPSSSHA256, RSAPKCS1SHA256:
		return crypto.SHA256
	case ECDSAP384SHA384:
		return crypto.SHA384
	}
	return 0
}

// Digest returns msg's digest under the scheme's hash function, which must be
// known.
func (s Scheme) Digest(msg []byte) []byte {
	h := s.Hash().New()
	h.Write(msg)
	return h.Sum(nil)
}

// SignerOpts returns the options of this scheme for crypto.Signer implementations
// and verifiers of the standard library.
func (s Scheme) SignerOpts() crypto.SignerOpts {
	if s == RSAPSSSHA256 {
		return &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: s.Hash()}
	}
	return s.Hash()
}

// Verify returns nil when signature is scheme s over digest under public, and a
// key-mismatch [fault.Error] otherwise. ECDSA signatures are ASN.1 DER (RFC 3279,
// section 2.2.3); digest is s.Hash()'s size.
func Verify(public crypto.PublicKey, s Scheme, digest, signature []byte) error {
	ok := false
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		fits := s == ECDSAP256SHA256 && key.Curve == elliptic.P256() || s == ECDSAP384SHA384 && key.Curve == elliptic.P384()
		ok = fits && ecdsa.VerifyASN1(key, digest, signature)
	case *rsa.PublicKey:
		switch s {
		case RSAPSSSHA256:
			opts := &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}
			ok = rsa.VerifyPSS(key, s.Hash(), digest, signature, opts) == nil
		case RSAPKCS1SHA256:
			ok = rsa.VerifyPKCS1v15(key, s.Hash(), digest, signature) == nil
		}
	}
	if !ok {
		return &fault.Error{Kind: fault.KeyMismatch, Message: "the signature does not verify under the recorded public key"}
	}
	return nil
}

// ParsePublic reads a SubjectPublicKeyInfo in DER (RFC 5280, section 4.1) and
// returns an *ecdsa.PublicKey on P-256 or P-384 or an *rsa.PublicKey.
func ParsePublic(der []byte) (crypto.PublicKey, error) {
	public, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	if _, _, err := AlgorithmOf(public); err != nil {
		return nil, err
	}
	return public, nil
}

// AlgorithmOf returns the algorithm that a public key can have and, for RSA,
// the modulus's length in bits.
func AlgorithmOf(public crypto.PublicKey) (a Algorithm, rsaBits int, err error) {
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return ES256, 0, nil
		case elliptic.P384():
			return ES384, 0, nil
		}
	case *rsa.PublicKey:
		return RS256, key.N.BitLen(), nil
	}
	return "", 0, &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("public keys of type %T are not supported here", public)}
}
