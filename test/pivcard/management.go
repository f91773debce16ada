package pivcard

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/des"
	"crypto/rand"
)

const slotManagement = 0x9b

// Algorithms of the management key (SP 800-78-4, table 6-2), and their sizes.
const (
	algTDES   = 0x03
	algAES128 = 0x08
	algAES192 = 0x0a
	algAES256 = 0x0c
)

var managementSize = map[byte]int{algTDES: 24, algAES128: 16, algAES192: 24, algAES256: 32}

// A managementKey is what whoever sets up the card must show.
type managementKey struct {
	alg   byte
	value []byte
	touch byte
}

// DefaultManagementKey returns the key that every YubiKey is delivered with.
func DefaultManagementKey() []byte {
	return bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 3)
}

// newManagementKey makes a key of value, or the factory's. Its algorithm is told
// by its size: 24 bytes are triple DES before firmware 5.7 and AES-192 since.
func newManagementKey(f Firmware, value []byte) managementKey {
	if value == nil {
		value = DefaultManagementKey()
	}
	alg := map[int]byte{16: algAES128, 24: algTDES, 32: algAES256}[len(value)]
	if alg == algTDES && f.AtLeast(Firmware{5, 7, 0}) {
		alg = algAES192
	}
	k := managementKey{alg: alg, value: bytes.Clone(value), touch: TouchNever}
	k.block() // panics when the size is wrong
	return k
}

func (k managementKey) block() cipher.Block {
	make := aes.NewCipher
	if k.alg == algTDES {
		make = des.NewTripleDESCipher
	}
	b, err := make(k.value)
	if err != nil {
		panic(err) // the size was checked when the key was set
	}
	return b
}

func (k managementKey) encrypt(plain []byte) []byte {
	out := make([]byte, len(plain))
	k.block().Encrypt(out, plain)
	return out
}

// authenticateManager is GENERAL AUTHENTICATE with the management key
// (SP 800-73-4 part 2, appendix A.1): the card asks for its challenge to be
// encrypted, or, in mutual authentication, for its witness to be decrypted.
func (c *Card) authenticateManager(cmd command, template map[uint32][]byte) ([]byte, status) {
	if cmd.p1 != c.manage.alg && (cmd.p1 != 0 || c.manage.alg != algTDES) {
		return nil, wrongParameters
	}
	witness, hasWitness := template[0x80]
	challenge, hasChallenge := template[0x81]
	response, hasResponse := template[0x82]
	switch {
	case hasWitness && len(witness) == 0:
		return tlv(0x7c, tlv(0x80, c.manage.encrypt(c.newChallenge(true)))), ok
	case hasChallenge && len(challenge) == 0:
		return tlv(0x7c, tlv(0x81, c.newChallenge(false))), ok
	case hasWitness && hasChallenge:
		return c.mutual(witness, challenge)
	case hasResponse && !c.witness && c.answered(response, c.manage.encrypt):
		return c.admit(nil)
	}
	c.challenge, c.managing = nil, false
	return nil, notSatisfied
}

func (c *Card) newChallenge(witness bool) []byte {
	c.challenge, c.witness = make([]byte, c.manage.block().BlockSize()), witness
	rand.Read(c.challenge)
	return c.challenge
}

// mutual takes the decrypted witness and encrypts the host's challenge.
func (c *Card) mutual(witness, challenge []byte) ([]byte, status) {
	same := func(b []byte) []byte { return b }
	if !c.witness || len(challenge) != len(c.challenge) || !c.answered(witness, same) {
		c.challenge, c.managing = nil, false
		return nil, notSatisfied
	}
	return c.admit(tlv(0x7c, tlv(0x82, c.manage.encrypt(challenge))))
}

// answered reports whether response is what expected makes of the challenge.
func (c *Card) answered(response []byte, expected func([]byte) []byte) bool {
	return len(c.challenge) > 0 && bytes.Equal(response, expected(c.challenge))
}

func (c *Card) admit(answer []byte) ([]byte, status) {
	c.managing = false // until the touch, if there is to be one
	if c.manage.touch != TouchNever && !c.touchedFor(c.manage.touch) {
		return nil, touchWanted
	}
	c.challenge, c.managing = nil, true
	return answer, ok
}

// setManagementKey is Yubico's SET MANAGEMENT KEY: algorithm, 9B, length, key.
// P2 says whether a touch is wanted from now on.
func (c *Card) setManagementKey(cmd command) ([]byte, status) {
	touch, known := map[byte]byte{0xff: TouchNever, 0xfe: TouchAlways, 0xfd: TouchCached}[cmd.p2]
	switch {
	case !c.managing:
		return nil, notSatisfied
	case cmd.p1 != 0xff || !known:
		return nil, wrongParameters
	case len(cmd.data) < 3 || cmd.data[1] != slotManagement || int(cmd.data[2]) != len(cmd.data)-3:
		return nil, wrongData
	}
	alg, value := cmd.data[0], cmd.data[3:]
	aes := alg != algTDES
	if managementSize[alg] != len(value) || aes && !c.Firmware.AtLeast(Firmware{5, 4, 0}) {
		return nil, wrongData
	}
	c.manage = managementKey{alg: alg, value: bytes.Clone(value), touch: touch}
	return nil, ok
}
