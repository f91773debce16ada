package piv

import (
	"bytes"
	"encoding/pem"
	"strconv"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// The exchange format is a PEM block (RFC 7468 has no headers; these are of RFC
// 1421, as OpenSSL's once were) that names a key by its place:
//
//	-----BEGIN HOLDFAST PIV KEY-----
//	Card: 12345678
//	Slot: 9a
//
//	SubjectPublicKeyInfo, DER, in base64
//	-----END HOLDFAST PIV KEY-----
const pemType = "HOLDFAST PIV KEY"

// maxFile is the longest file, in bytes: RSA-4096 keys need 900.
const maxFile = 4096

// A reference is the content of such a file.
type reference struct {
	serial uint32
	slot   string
	public []byte
}

// encode returns r as a file.
func (r reference) encode() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemType, Headers: map[string]string{"Card": unitOf(r.serial), "Slot": r.slot}, Bytes: r.public})
}

// parseFile reads such a file, which must be exactly as encode writes it.
func parseFile(file []byte) (reference, error) {
	if len(file) > maxFile {
		return reference{}, badFile("it is too long")
	}
	block, _ := pem.Decode(file)
	if block == nil || block.Type != pemType {
		return reference{}, badFile("it is no PEM block " + pemType)
	}
	serial, err := strconv.ParseUint(block.Headers["Card"], 10, 32)
	if err != nil || serial == 0 {
		return reference{}, badFile("it does not name a card by its serial number")
	}
	if _, err := keys.ParseSlot(block.Headers["Slot"]); err != nil {
		return reference{}, err
	}
	if _, err := keys.ParsePublic(block.Bytes); err != nil {
		return reference{}, badFile("it holds no public key that can be used here")
	}
	r := reference{uint32(serial), block.Headers["Slot"], block.Bytes}
	if !bytes.Equal(bytes.TrimSpace(file), bytes.TrimSpace(r.encode())) {
		return reference{}, badFile("it is not in canonical form")
	}
	return r, nil
}

func badFile(fact string) error {
	return &fault.Error{Kind: fault.BadRequest, Message: "this is not the file of a key on a card: " + fact, Next: fault.Next{Do: fault.Adopt}}
}

// Export returns a file that names the key's card and slot, and its public key.
func (p *PIV) Export(m keys.Material) ([]byte, error) {
	k, err := parse(m)
	if err != nil {
		return nil, err
	}
	return reference{k.Serial, k.Slot, k.public}.encode(), nil
}
