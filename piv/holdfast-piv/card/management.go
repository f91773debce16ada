package card

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/des"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/internal/fault"
	"holdfast/piv/wire"
)

// Algorithms of the management key (NIST SP 800-78-4, table 6-2) and their key
// sizes in bytes.
const (
	alg3DES   = 0x03
	algAES128 = 0x08
	algAES192 = 0x0a
	algAES256 = 0x0c
)

var managementSizes = map[byte]int{alg3DES: 24, algAES128: 16, algAES192: 24, algAES256: 32}

// authenticate proves a management key to the card, and has the card prove it too
// (NIST SP 800-73-4, part 2, appendix A.1). A wrong one is a statusError, or
// errManagement, and costs nothing.
func (s *Session) authenticate(key []byte) error {
	s.presented = true
	algorithm, err := s.managementAlgorithm()
	if err != nil {
		return err
	}
	if len(key) != managementSizes[algorithm] {
		return errManagement
	}
	block, err := blockOf(algorithm, key)
	if err != nil {
		return err
	}
	size := block.BlockSize()
	witness, err := s.challenge(algorithm, tlv(0x80, nil), 0x80, size)
	if err != nil {
		return err
	}
	block.Decrypt(witness, witness)
	ours, want := make([]byte, size), make([]byte, size)
	rand.Read(ours)
	block.Encrypt(want, ours)
	answer, err := s.challenge(algorithm, append(tlv(0x80, witness), tlv(0x81, ours)...), 0x82, size)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(answer, want) != 1 {
		return errManagement
	}
	return nil
}

var errManagement = errors.New("this is not the card's management key")

func blockOf(algorithm byte, key []byte) (cipher.Block, error) {
	if algorithm == alg3DES {
		return des.NewTripleDESCipher(key)
	}
	return aes.NewCipher(key)
}

// challenge is one step of GENERAL AUTHENTICATE with the management key; it
// returns the field with the tag, which has the size.
func (s *Session) challenge(algorithm byte, template []byte, tag byte, size int) ([]byte, error) {
	answer, err := send(s.raw, insAuthenticate, algorithm, refManagement, tlv(0x7c, template))
	if err != nil {
		return nil, err
	}
	answer, err = only(answer, 0x7c)
	if err == nil {
		answer, err = only(answer, tag)
	}
	if err != nil || len(answer) != size {
		return nil, errTLV
	}
	return answer, nil
}

// managementAlgorithm is triple DES unless the card reports another one.
func (s *Session) managementAlgorithm() (byte, error) {
	if !s.since(5, 3, 0) {
		return alg3DES, nil
	}
	m, err := metadataOf(s.raw, refManagement)
	if err != nil {
		return 0, err
	}
	if managementSizes[m.algorithm] == 0 {
		return 0, fmt.Errorf("management key of algorithm %#x", m.algorithm)
	}
	return m.algorithm, nil
}

// managementKey returns a management key that the card has just accepted: the given
// one, or one that the card releases for its PIN, which open proves. The caller wipes
// it.
func (s *Session) managementKey(given, pin []byte, open func(pin []byte) error) ([]byte, error) {
	if len(given) > 0 {
		if err := s.authenticate(given); err != nil {
			return nil, s.noManagement(err)
		}
		return bytes.Clone(given), nil
	}
	if len(pin) == 0 {
		return nil, &fault.Error{Kind: fault.PINRequired, Message: fmt.Sprintf("card %d needs its PIN, which opens its management key", s.serial), Hint: "give the PIN"}
	}
	if err := open(pin); err != nil {
		return nil, err
	}
	kept, err := s.protectedKeys()
	if err != nil {
		return nil, err
	}
	defer wipe(kept)
	for _, key := range kept {
		if err = s.authenticate(key); err == nil {
			return bytes.Clone(key), nil
		}
	}
	if err != nil {
		return nil, s.noManagement(err)
	}
	return nil, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("card %d does not keep its management key", s.serial), Next: s.setUpNext()}
}

func (s *Session) setUpNext() fault.Next { return fault.Next{Do: fault.SetUpCard, Card: s.serial} }

// noManagement translates the error of a management key that the card refused.
func (s *Session) noManagement(err error) error {
	status, ok := statusOf(err)
	if errors.Is(err, errManagement) || ok && (status == statusSecurity || status>>8 == 0x63 || status == statusWrongData) {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("this is not the management key of card %d", s.serial), Next: s.setUpNext(), Err: err}
	}
	return err
}

func wipe(secrets [][]byte) {
	for _, secret := range secrets {
		clear(secret)
	}
}

// factoryRefused fails for a card that still has a secret from the factory, on which
// nothing is made or stored. A card before firmware 5.3 does not report that, and only
// the given secrets are compared.
func (s *Session) factoryRefused(r *wire.Request) error {
	for _, ref := range []byte{refPIN, refPUK, refManagement} {
		is, err := s.factory(ref)
		if err != nil {
			return err
		}
		if is != nil && *is {
			return s.factoryError(ref)
		}
	}
	switch {
	case string(r.PIN) == piv.DefaultPIN:
		return s.factoryError(refPIN)
	case bytes.Equal(r.ManagementKey, piv.DefaultManagementKey):
		return s.factoryError(refManagement)
	}
	return nil
}

func (s *Session) factoryError(ref byte) error {
	name := names[ref]
	if ref == refManagement {
		name = "management key"
	}
	return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("card %d still has the factory %s, which is public", s.serial, name), Next: s.setUpNext()}
}

// factory reports whether a secret is the factory's, or nil when the card does not
// report it.
func (s *Session) factory(ref byte) (*bool, error) {
	if !s.since(5, 3, 0) {
		return nil, nil
	}
	m, err := metadataOf(s.raw, ref)
	return m.factory, err
}
