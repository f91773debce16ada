package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	"slices"
	"sync"

	"github.com/google/go-tpm/tpm2"

	"holdfast/test/swtpm"
)

// A direct signer is what a program would do without an agent: go-tpm, a loaded
// P-256 key, one connection that it keeps, no verification.
type direct struct {
	mu     sync.Mutex // a connection carries one command at a time
	conn   *swtpm.Conn
	handle tpm2.TPMHandle
	name   tpm2.TPM2BName
	public *ecdsa.PublicKey
}

var _ crypto.Signer = (*direct)(nil)

// newDirect loads a new key behind dial.
func newDirect(b *bench, dial func() (*swtpm.Conn, error)) *direct {
	conn, err := dial()
	b.Check("direct: dial", err)
	b.Cleanup(func() { conn.Close() })
	rsp, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(signingTemplate())}.Execute(conn)
	b.Check("direct: TPM2_CreatePrimary", err)
	area, err := rsp.OutPublic.Contents()
	b.Check("direct: public area", err)
	point, err := area.Unique.ECC()
	b.Check("direct: public area", err)
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, point.X.Buffer, point.Y.Buffer))
	b.Check("direct: public key", err)
	return &direct{conn: conn, handle: rsp.ObjectHandle, name: rsp.Name, public: public}
}

func signingTemplate() tpm2.TPMTPublic {
	return tpm2.TPMTPublic{
		Type:    tpm2.TPMAlgECC,
		NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{
			FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true, UserWithAuth: true, NoDA: true, SignEncrypt: true,
		},
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
			CurveID: tpm2.TPMECCNistP256,
			Scheme: tpm2.TPMTECCScheme{
				Scheme:  tpm2.TPMAlgECDSA,
				Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: tpm2.TPMAlgSHA256}),
			},
		}),
	}
}

// Public implements crypto.Signer.
func (d *direct) Public() crypto.PublicKey { return d.public }

// Sign implements crypto.Signer with go-tpm.
func (d *direct) Sign(_ io.Reader, digest []byte, _ crypto.SignerOpts) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rsp, err := tpm2.Sign{
		KeyHandle:  tpm2.AuthHandle{Handle: d.handle, Name: d.name, Auth: tpm2.PasswordAuth(nil)},
		Digest:     tpm2.TPM2BDigest{Buffer: digest},
		InScheme:   tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull},
		Validation: tpm2.TPMTTKHashCheck{Tag: tpm2.TPMSTHashCheck, Hierarchy: tpm2.TPMRHNull},
	}.Execute(d.conn)
	if err != nil {
		return nil, err
	}
	signature, err := rsp.Signature.Signature.ECDSA()
	if err != nil {
		return nil, err
	}
	return encode(signature.SignatureR.Buffer, signature.SignatureS.Buffer)
}

func encode(r, s []byte) ([]byte, error) {
	return asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(r), new(big.Int).SetBytes(s)})
}

// sign is the side of a client that signs message.
func (d *direct) sign(int) error {
	digest := sha256.Sum256(clientMessage())
	_, err := d.Sign(nil, digest[:], crypto.SHA256)
	return err
}

// signByHand is the side of a client that lays the command out byte by byte
// (TPM 2.0 Part 3, section 20.2): the least that a signature can cost.
func (d *direct) signByHand(int) error {
	digest := sha256.Sum256(clientMessage())
	_, err := d.byHand(digest[:])
	return err
}

func (d *direct) byHand(digest []byte) ([]byte, error) {
	command := []byte{0x80, 0x02, 0, 0, 0, 0, 0, 0, 0x01, 0x5d} // sessions, size, TPM_CC_Sign
	command = binary.BigEndian.AppendUint32(command, uint32(d.handle))
	command = append(command, 0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 0, 0, 0) // TPM_RS_PW with an empty value
	command = binary.BigEndian.AppendUint16(command, uint16(len(digest)))
	command = append(command, digest...)
	command = append(command, 0, 0x10, 0x80, 0x24, 0x40, 0, 0, 7, 0, 0) // TPM_ALG_NULL, TPM_ST_HASHCHECK, TPM_RH_NULL
	binary.BigEndian.PutUint32(command[2:], uint32(len(command)))
	d.mu.Lock()
	defer d.mu.Unlock()
	reply, err := d.conn.Send(command)
	if err != nil {
		return nil, err
	}
	// header, parameter size, TPM_ALG_ECDSA, TPM_ALG_SHA256, r and s with sizes
	if len(reply) < 18+2+32+2+32 || !bytes.Equal(reply[6:10], []byte{0, 0, 0, 0}) || reply[19] > 32 {
		return nil, fmt.Errorf("TPM2_Sign: %x", reply)
	}
	r := reply[20 : 20+reply[19]]
	s := reply[20+len(r)+2:]
	return encode(r, s[:reply[20+len(r)+1]])
}

// clientMessage is the input of a TLS 1.3 client's signature (RFC 8446, section
// 4.4.3) over a transcript hash that no handshake has.
func clientMessage() []byte {
	m := bytes.Repeat([]byte{' '}, 64)
	m = append(m, "TLS 1.3, client CertificateVerify\x00"...)
	return append(m, make([]byte, 32)...)
}
