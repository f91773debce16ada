package tpm

import (
	"context"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// nonceSize is the length of our nonces in bytes, the least that TPMs accept.
const nonceSize = 16

// Bits of TPMA_SESSION (TPM 2.0 Part 2, section 8.4).
const (
	continueSession = 0x01
	decryptSession  = 0x20 // the first command parameter is encrypted
	encryptSession  = 0x40 // the first reply parameter is encrypted
)

// A session is an HMAC session (TPM 2.0 Part 1, section 19). go-tpm has one of
// its own; this one forgets the authorisation value that it was bound with,
// and takes values with zero bytes.
type session struct {
	handle tpm2.TPMHandle
	link   *link
	key    []byte // the session key
	auth   []byte // the entity's authorisation value; empty when bound to it
	attrs  byte

	nonceTPM    []byte
	nonceCaller [nonceSize]byte
	opened      []byte // the last reply parameter that was decrypted

	until time.Time   // with Unlock: the time of its end
	timer *time.Timer // with Unlock: ends it

	parked *tpm2.TPMSContext // when it is saved out of the device; the owner's
	used   uint64            // the clock when it was last used; the owner's
}

var _ tpm2.Session = (*session)(nil)

// A sessionRequest describes a session to start.
type sessionRequest struct {
	salt     *parent        // encrypts the salt; nil for none
	bind     tpm2.TPMHandle // the entity it is bound to, with bindAuth; zero for none
	bindAuth []byte
	auth     []byte // authorises an entity that it is not bound to
	encrypt  bool   // encrypt the first command parameter
	reply    bool   // have the first reply parameter encrypted
}

// startSession starts a session. Its handle is held and the caller's to flush.
func (t *TPM) startSession(ctx context.Context, l *link, r sessionRequest) (*session, error) {
	s := &session{link: l, auth: trimZeros(r.auth), attrs: continueSession}
	if _, err := rand.Read(s.nonceCaller[:]); err != nil {
		return nil, err
	}
	command := tpm2.StartAuthSession{
		TPMKey: tpm2.TPMRHNull, Bind: tpm2.TPMRHNull, SessionType: tpm2.TPMSEHMAC, AuthHash: tpm2.TPMAlgSHA256,
		NonceCaller: tpm2.TPM2BNonce{Buffer: s.nonceCaller[:]}, Symmetric: tpm2.TPMTSymDef{Algorithm: tpm2.TPMAlgNull},
	}
	if r.bind != 0 {
		command.Bind = r.bind
	}
	if r.encrypt {
		s.attrs |= decryptSession
	}
	if r.reply {
		s.attrs |= encryptSession
	}
	if r.encrypt || r.reply {
		command.Symmetric = aes128CFB()
	}
	salt, err := salted(&command, r.salt)
	if err != nil {
		return nil, err
	}
	return s, t.withRoom(ctx, func() error {
		reply, err := command.Execute(l.on(ctx))
		if err != nil {
			return step("TPM2_StartAuthSession", l, err)
		}
		s.handle = reply.SessionHandle
		s.nonceTPM = reply.NonceTPM.Buffer
		s.derive(r.bindAuth, salt)
		t.hold(s.handle)
		return nil
	})
}

// salted encrypts a fresh salt to the parent.
func salted(command *tpm2.StartAuthSession, p *parent) ([]byte, error) {
	if p == nil {
		return nil, nil
	}
	key, err := tpm2.ImportEncapsulationKey(p.public)
	if err != nil {
		return nil, err
	}
	salt, sealed, err := tpm2.CreateEncryptedSalt(rand.Reader, key)
	if err != nil {
		return nil, err
	}
	command.TPMKey = p.handle
	command.EncryptedSalt = tpm2.TPM2BEncryptedSecret{Buffer: sealed}
	return salt, nil
}

// aes128CFB is the parameter encryption that every TPM has.
func aes128CFB() tpm2.TPMTSymDef {
	return tpm2.TPMTSymDef{
		Algorithm: tpm2.TPMAlgAES,
		KeyBits:   tpm2.NewTPMUSymKeyBits(tpm2.TPMAlgAES, tpm2.TPMKeyBits(128)),
		Mode:      tpm2.NewTPMUSymMode(tpm2.TPMAlgAES, tpm2.TPMAlgCFB),
	}
}

// derive makes the session key from the bind entity's authorisation value and
// the salt (TPM 2.0 Part 1, section 19.6.8), and wipes its inputs.
func (s *session) derive(bindAuth, salt []byte) {
	if len(bindAuth)+len(salt) == 0 {
		return
	}
	secret := append(append(make([]byte, 0, len(bindAuth)+len(salt)), bindAuth...), salt...)
	s.key = tpm2.KDFa(crypto.SHA256, secret, "ATH", s.nonceTPM, s.nonceCaller[:], 256)
	clear(secret)
	clear(salt)
}

// trimZeros removes trailing zeros from an authorisation value, as the TPM
// does (TPM 2.0 Part 1, section 19.6.5, note 2).
func trimZeros(auth []byte) []byte {
	for len(auth) > 0 && auth[len(auth)-1] == 0 {
		auth = auth[:len(auth)-1]
	}
	return auth
}

// wipe clears the session's secrets from memory.
func (s *session) wipe() {
	clear(s.key)
	clear(s.opened)
	s.key = nil
	s.auth = nil
}

// mac computes an authorisation HMAC (TPM 2.0 Part 1, section 19.6.9) over the
// hash of a command's or a reply's parameters.
func (s *session) mac(hash [sha256.Size]byte, newer, older []byte, attrs byte) []byte {
	key := append(append(make([]byte, 0, len(s.key)+len(s.auth)), s.key...), s.auth...)
	h := hmac.New(sha256.New, key)
	h.Write(hash[:])
	h.Write(newer)
	h.Write(older)
	h.Write([]byte{attrs})
	clear(key)
	return h.Sum(nil)
}

// commandMAC authorises a command whose cpHash is hash.
func (s *session) commandMAC(hash [sha256.Size]byte) []byte {
	return s.mac(hash, s.nonceCaller[:], s.nonceTPM, s.attrs)
}

// errReplyMAC means that a reply does not come from the other end of the session.
var errReplyMAC = errors.New("the reply's authorisation is wrong")

// accept checks a reply's authorisation and rolls the nonces.
func (s *session) accept(hash [sha256.Size]byte, nonce []byte, attrs byte, mac []byte) error {
	if len(nonce) < nonceSize || !hmac.Equal(mac, s.mac(hash, nonce, s.nonceCaller[:], attrs)) {
		return errReplyMAC
	}
	s.nonceTPM = append(s.nonceTPM[:0], nonce...)
	return nil
}

// commandHash is cpHash: the hash of a command's code, names and parameters
// (TPM 2.0 Part 1, section 16.7).
func commandHash(cc tpm2.TPMCC, parameters []byte, names ...[]byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(cc)))
	for _, name := range names {
		h.Write(name)
	}
	h.Write(parameters)
	h.Sum(sum[:0])
	return sum
}

// replyHash is rpHash of a successful reply (TPM 2.0 Part 1, section 16.8).
func replyHash(cc tpm2.TPMCC, parameters []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(cc))) // response code 0, then cc
	h.Write(parameters)
	h.Sum(sum[:0])
	return sum
}

// The rest implements go-tpm's Session for commands that go-tpm marshals.

// Init does nothing: a session here has been started.
func (s *session) Init(transport.TPM) error { return nil }

// CleanupFailure does nothing: the code that started the session flushes it.
func (s *session) CleanupFailure(transport.TPM) error { return nil }

// NonceTPM returns the TPM's last nonce.
func (s *session) NonceTPM() tpm2.TPM2BNonce { return tpm2.TPM2BNonce{Buffer: s.nonceTPM} }

// NewNonceCaller makes the nonce of the next command.
func (s *session) NewNonceCaller() error {
	_, err := rand.Read(s.nonceCaller[:])
	return err
}

// Authorize returns the authorisation area of a command.
func (s *session) Authorize(cc tpm2.TPMCC, parms, _ []byte, names []tpm2.TPM2BName, _ int) (*tpm2.TPMSAuthCommand, error) {
	list := make([][]byte, len(names))
	for i, name := range names {
		list[i] = name.Buffer
	}
	return &tpm2.TPMSAuthCommand{
		Handle:        s.handle,
		Nonce:         tpm2.TPM2BNonce{Buffer: s.nonceCaller[:]},
		Attributes:    attributes(s.attrs),
		Authorization: tpm2.TPM2BData{Buffer: s.commandMAC(commandHash(cc, parms, list...))},
	}, nil
}

// attributes is TPMA_SESSION as go-tpm spells it.
func attributes(bits byte) tpm2.TPMASession {
	return tpm2.TPMASession{
		ContinueSession: bits&continueSession != 0, Decrypt: bits&decryptSession != 0, Encrypt: bits&encryptSession != 0,
	}
}

// Validate checks the authorisation area of a reply.
func (s *session) Validate(_ tpm2.TPMRC, cc tpm2.TPMCC, parms []byte, _ []tpm2.TPM2BName, _ int, auth *tpm2.TPMSAuthResponse) error {
	if auth.Attributes != attributes(s.attrs) {
		return errReplyMAC
	}
	return s.accept(replyHash(cc, parms), auth.Nonce.Buffer, s.attrs, auth.Authorization.Buffer)
}

// IsEncryption reports whether the first reply parameter is encrypted.
func (s *session) IsEncryption() bool { return s.attrs&encryptSession != 0 }

// IsDecryption reports whether the first command parameter is encrypted.
func (s *session) IsDecryption() bool { return s.attrs&decryptSession != 0 }

// Encrypt encrypts the first command parameter in place.
func (s *session) Encrypt(parameter []byte) error {
	if !s.IsDecryption() {
		return nil
	}
	block, iv, err := s.cfb(s.nonceCaller[:], s.nonceTPM)
	if err != nil {
		return err
	}
	//lint:ignore SA1019 parameter encryption is CFB, authenticated by the HMAC around it
	cipher.NewCFBEncrypter(block, iv).XORKeyStream(parameter, parameter)
	return nil
}

// Decrypt decrypts the first reply parameter in place, once Validate has accepted
// the reply and its nonce. [session.wipe] wipes it.
func (s *session) Decrypt(parameter []byte) error {
	if !s.IsEncryption() {
		return nil
	}
	block, iv, err := s.cfb(s.nonceTPM, s.nonceCaller[:])
	if err != nil {
		return err
	}
	//lint:ignore SA1019 parameter encryption is CFB, authenticated by the HMAC around it
	cipher.NewCFBDecrypter(block, iv).XORKeyStream(parameter, parameter)
	s.opened = parameter
	return nil
}

// cfb is the cipher of one parameter, AES-128 in CFB mode, and its first vector
// (TPM 2.0 Part 1, section 21.3).
func (s *session) cfb(newer, older []byte) (cipher.Block, []byte, error) {
	secret := append(append(make([]byte, 0, len(s.key)+len(s.auth)), s.key...), s.auth...)
	stream := tpm2.KDFa(crypto.SHA256, secret, "CFB", newer, older, 256)
	clear(secret)
	block, err := aes.NewCipher(stream[:16])
	return block, stream[16:], err
}

// Handle returns the session's handle.
func (s *session) Handle() tpm2.TPMHandle { return s.handle }
