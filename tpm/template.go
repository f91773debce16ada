package tpm

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// A suite is a signature scheme as a TPM spells it.
type suite struct {
	scheme keys.Scheme
	alg    tpm2.TPMAlgID // TPMI_ALG_SIG_SCHEME
	hash   tpm2.TPMAlgID
	curve  tpm2.TPMECCCurve // zero for RSA
}

// suites lists the suites of our keys. RSA keys appear under both schemes.
func suites() []suite {
	return []suite{
		{keys.ECDSAP256SHA256, tpm2.TPMAlgECDSA, tpm2.TPMAlgSHA256, tpm2.TPMECCNistP256},
		{keys.ECDSAP384SHA384, tpm2.TPMAlgECDSA, tpm2.TPMAlgSHA384, tpm2.TPMECCNistP384},
		{keys.RSAPSSSHA256, tpm2.TPMAlgRSAPSS, tpm2.TPMAlgSHA256, 0},
		{keys.RSAPKCS1SHA256, tpm2.TPMAlgRSASSA, tpm2.TPMAlgSHA256, 0},
	}
}

// suiteOf returns the suite of a scheme.
func suiteOf(s keys.Scheme) (suite, error) {
	for _, su := range suites() {
		if su.scheme == s {
			return su, nil
		}
	}
	return suite{}, &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("a TPM key cannot sign with %q", s)}
}

// template returns the public area to request.
func template(t keys.Template) (tpm2.TPMTPublic, error) {
	scheme, err := keys.SchemeFor(t.Algorithm, t.Purpose)
	if err != nil {
		return tpm2.TPMTPublic{}, err
	}
	su, err := suiteOf(scheme)
	if err != nil {
		return tpm2.TPMTPublic{}, err
	}
	kind, parms, err := parameters(su, t.RSABits)
	return tpm2.TPMTPublic{
		Type:    kind,
		NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{
			FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true,
			UserWithAuth: true, SignEncrypt: true, NoDA: len(t.PIN) == 0,
		},
		Parameters: parms,
	}, err
}

// parameters is the algorithm part of a public area. Bits are for RSA.
func parameters(su suite, bits int) (tpm2.TPMAlgID, tpm2.TPMUPublicParms, error) {
	if su.curve != 0 {
		return tpm2.TPMAlgECC, tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
			CurveID: su.curve,
			Scheme: tpm2.TPMTECCScheme{Scheme: su.alg,
				Details: tpm2.NewTPMUAsymScheme(su.alg, &tpm2.TPMSSigSchemeECDSA{HashAlg: su.hash})},
		}), nil
	}
	if bits == 0 {
		bits = 2048
	}
	if bits != 2048 && bits != 3072 && bits != 4096 {
		return 0, tpm2.TPMUPublicParms{}, &fault.Error{Kind: fault.BadRequest,
			Message: fmt.Sprintf("RSA keys of %d bits are not made", bits), Hint: "2048, 3072 or 4096"}
	}
	scheme := tpm2.TPMTRSAScheme{Scheme: su.alg, Details: tpm2.NewTPMUAsymScheme(su.alg, &tpm2.TPMSSigSchemeRSASSA{HashAlg: su.hash})}
	if su.alg == tpm2.TPMAlgRSAPSS {
		scheme.Details = tpm2.NewTPMUAsymScheme(su.alg, &tpm2.TPMSSigSchemeRSAPSS{HashAlg: su.hash})
	}
	return tpm2.TPMAlgRSA, tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, &tpm2.TPMSRSAParms{
		KeyBits: tpm2.TPMKeyBits(bits), Scheme: scheme,
	}), nil
}

// checkSigner rejects a public area that cannot belong to a key of ours: one that does
// not sign, is restricted to data that the TPM made, needs a policy, or has another
// name algorithm.
func checkSigner(area *tpm2.TPMTPublic) error {
	a := area.ObjectAttributes
	switch {
	case !a.SignEncrypt:
		return refuse("it does not sign")
	case a.Restricted:
		return refuse("it is restricted to signing what the TPM made")
	case !a.UserWithAuth || len(area.AuthPolicy.Buffer) != 0:
		return refuse("it needs a policy session")
	case area.NameAlg != tpm2.TPMAlgSHA256:
		return refuse("its name algorithm is not SHA-256")
	}
	return nil
}

// refuse is the error for a key that is well-formed and not usable here.
func refuse(why string) error {
	return &fault.Error{Kind: fault.Unsupported, Message: "the key cannot be used here: " + why}
}

// freedoms lists the differences from a key that was made inside this TPM, stays there
// and only signs. It is empty for our own keys.
func freedoms(area *tpm2.TPMTPublic) []string {
	a := area.ObjectAttributes
	var list []string
	for _, f := range []struct {
		free bool
		what string
	}{
		{!a.FixedTPM || !a.FixedParent, "it can leave this TPM"},
		{!a.SensitiveDataOrigin, "it was made outside"},
		{a.Decrypt, "it also decrypts"},
	} {
		if f.free {
			list = append(list, f.what)
		}
	}
	return list
}

// suitesOf returns the suites that a public area allows: one, or both RSA
// schemes for a key without a fixed scheme.
func suitesOf(area *tpm2.TPMTPublic) ([]suite, error) {
	alg, hash, curve, err := schemeOf(area)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(suites(), func(su suite) bool {
		fixed := alg != tpm2.TPMAlgNull && (alg != su.alg || hash != su.hash)
		return su.curve != curve || fixed
	})
	if len(list) == 0 {
		return nil, refuse("its curve or signature scheme is none of ours")
	}
	return list, nil
}

// schemeOf reads scheme, hash and curve from a public area.
func schemeOf(area *tpm2.TPMTPublic) (alg, hash tpm2.TPMAlgID, curve tpm2.TPMECCCurve, err error) {
	switch area.Type {
	case tpm2.TPMAlgECC:
		p, err := area.Parameters.ECCDetail()
		if err != nil {
			return 0, 0, 0, err
		}
		if p.Scheme.Scheme == tpm2.TPMAlgECDSA {
			d, err := p.Scheme.Details.ECDSA()
			if err != nil {
				return 0, 0, 0, err
			}
			hash = d.HashAlg
		}
		return p.Scheme.Scheme, hash, p.CurveID, nil
	case tpm2.TPMAlgRSA:
		p, err := area.Parameters.RSADetail()
		if err != nil {
			return 0, 0, 0, err
		}
		hash, err = rsaHash(p.Scheme)
		return p.Scheme.Scheme, hash, 0, err
	}
	return 0, 0, 0, refuse("it is neither ECC nor RSA")
}

// rsaHash returns the hash that an RSA scheme fixes, or 0 without a scheme.
func rsaHash(s tpm2.TPMTRSAScheme) (tpm2.TPMAlgID, error) {
	switch s.Scheme {
	case tpm2.TPMAlgRSAPSS:
		d, err := s.Details.RSAPSS()
		if err != nil {
			return 0, err
		}
		return d.HashAlg, nil
	case tpm2.TPMAlgRSASSA:
		d, err := s.Details.RSASSA()
		if err != nil {
			return 0, err
		}
		return d.HashAlg, nil
	}
	return 0, nil
}

// spkiOf returns the SubjectPublicKeyInfo of a public area. RSA moduli with the
// ROCA fingerprint, exponents other than 65537 and unusual lengths are rejected.
func spkiOf(area *tpm2.TPMTPublic) ([]byte, error) {
	public, err := tpm2.Pub(*area)
	if err != nil {
		return nil, err
	}
	if key, ok := public.(*rsa.PublicKey); ok {
		if err := checkModulus(key); err != nil {
			return nil, err
		}
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	_, err = keys.ParsePublic(der)
	return der, err
}

// checkModulus rejects RSA keys that are weak or of an unsupported size.
func checkModulus(key *rsa.PublicKey) error {
	bits := key.N.BitLen()
	if key.E != 65537 || bits != 2048 && bits != 3072 && bits != 4096 {
		return refuse(fmt.Sprintf("RSA with %d bits and exponent %d is not accepted", bits, key.E))
	}
	if keys.ROCA(key.N) {
		return refuse("its modulus has the ROCA fingerprint (CVE-2017-15361): the private key can be computed from it")
	}
	return nil
}

// sameKey reports whether two public areas are alike in everything that we
// asked for: only the unique field, which the TPM fills in, may differ.
func sameKey(asked, made tpm2.TPMTPublic) bool {
	made.Unique = asked.Unique
	return bytes.Equal(tpm2.Marshal(asked), tpm2.Marshal(made))
}
