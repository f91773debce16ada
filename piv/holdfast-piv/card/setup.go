package card

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/internal/fault"
	"holdfast/piv/wire"
)

// setUp replaces management key, PUK and PIN, in this order, so that it can be
// repeated after an interruption at any point. It stores the new management key on
// the card, readable with the PIN, before that key comes into force, and beside the
// key in force if that is kept nowhere else. It changes the PIN, which opens both,
// last.
func (s *Session) setUp(r *wire.Request, _ *wire.Reply) error {
	if err := errors.Join(s.acceptable(refPIN, r.PIN), s.acceptable(refPUK, r.PUK)); err != nil {
		return err
	}
	admin, err := get(s.raw, objectAdmin)
	if err != nil {
		return err
	}
	begun := keepsManagement(admin)
	pin, err := s.current(refPIN, r.Old, r.PIN, begun, s.verify)
	if err != nil {
		return err
	}
	mine, err := s.rotate(r.ManagementKey, admin)
	if err != nil {
		return err
	}
	_, err = s.current(refPUK, r.OldPUK, r.PUK, begun || mine, func(old []byte) error {
		return s.toNew(refPUK, old, r.PUK)
	})
	if err != nil || bytes.Equal(pin, r.PIN) {
		s.vault.Lock("")
		return err
	}
	return s.toNew(refPIN, pin, r.PIN)
}

func (s *Session) toNew(ref byte, old, new []byte) error {
	if err := s.spare(ref); err != nil {
		return err
	}
	return s.replace(insChangeReference, ref, ref, old, new)
}

// current finds the present PIN or PUK by proving candidates with try: the given
// value; without one the factory's, unless the card reports another; or the new one,
// after an interrupted set-up. It does not guess values of the owner's.
func (s *Session) current(ref byte, given, new []byte, begun bool, try func([]byte) error) ([]byte, error) {
	candidates := [][]byte{given}
	if len(given) == 0 {
		var err error
		if candidates, err = s.likely(ref, new, begun); err != nil {
			return nil, err
		}
	}
	var err error
	for _, value := range candidates {
		if err = try(value); err == nil {
			return value, nil
		}
		if kind := wire.FromError(err).Kind; kind != fault.PINRequired {
			return nil, err
		}
	}
	return nil, err
}

// likely returns the candidates for a PIN or PUK that was not given.
func (s *Session) likely(ref byte, new []byte, begun bool) ([][]byte, error) {
	is, err := s.factory(ref)
	if err != nil {
		return nil, err
	}
	factory := []byte(factoryValues[ref])
	switch {
	case is != nil && *is, is == nil && !begun:
		return [][]byte{factory}, nil
	case is == nil:
		return [][]byte{new, factory}, nil
	case begun:
		return [][]byte{new}, nil
	}
	return nil, &fault.Error{Kind: fault.PINRequired, Message: fmt.Sprintf("card %d has a %s of its own", s.serial, names[ref]), Hint: "give its present one"}
}

// rotate gives the card a new random management key, which the card stores, and reports
// whether it stored the last one, too. The PIN has been proved.
func (s *Session) rotate(given, admin []byte) (mine bool, err error) {
	printed, err := get(s.raw, objectPrinted)
	if err != nil {
		return false, err
	}
	defer clear(printed)
	if _, err := only(printed, tagProtected); len(printed) > 0 && err != nil {
		return false, &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("card %d holds printed information, where a management key would be stored", s.serial), Hint: "remove it if it is not needed: ykman piv objects"}
	}
	kept := parseProtected(printed)
	defer wipe(kept)
	old, mine, err := s.inForce(given, kept)
	if err != nil {
		return false, err
	}
	algorithm, err := s.managementAlgorithm()
	if err != nil {
		return false, err
	}
	if managementSizes[algorithm] != newKeySize {
		algorithm = algAES192
	}
	key := make([]byte, newKeySize)
	defer clear(key)
	rand.Read(key)
	before := tlv(tagProtectedKey, key)
	if mine {
		before = append(tlv(tagProtectedKey, old), tlv(tagProtectedNew, key)...)
	}
	defer clear(before)
	if err := s.store(before, adminKeeps()); err != nil {
		return mine, s.undo(printed, admin, err)
	}
	if err := s.force(algorithm, key); err != nil {
		return mine, s.undo(printed, admin, err)
	}
	return mine, s.keep(key, before)
}

// newKeySize is the key size of triple DES and AES-192, in bytes: every firmware
// supports one of them, and piv-go and older tools support no other size on the card.
const newKeySize = 24

// inForce returns the management key that the card accepts, and whether the card
// stores it.
func (s *Session) inForce(given []byte, kept [][]byte) (key []byte, mine bool, err error) {
	if len(given) > 0 {
		if err = s.authenticate(given); err == nil {
			return given, false, nil
		}
	}
	for _, key := range kept {
		if err = s.authenticate(key); err == nil {
			return key, true, nil
		}
	}
	if is, _ := s.factory(refManagement); len(given) == 0 && (is == nil || *is) {
		if err = s.authenticate(piv.DefaultManagementKey); err == nil {
			return piv.DefaultManagementKey, false, nil
		}
	}
	if err == nil {
		err = errManagement
	}
	return nil, false, s.noManagement(err)
}

// store writes the management keys that may be in force, and reads them back. It also sets
// the flag by which other programs know of them, which cards of other makers do not store.
func (s *Session) store(before, admin []byte) error {
	err := putBack(s.raw, objectPrinted, tlv(tagProtected, before))
	if _, refused := statusOf(err); refused || errors.Is(err, errNotStored) {
		return &fault.Error{Kind: fault.Unsupported, Err: err, Hint: "holdfast supports only cards that store data behind their PIN",
			Message: fmt.Sprintf("card %d does not store its management key; nothing was changed", s.serial)}
	}
	if err != nil {
		return err
	}
	err = putBack(s.raw, objectAdmin, admin)
	if _, refused := statusOf(err); refused || errors.Is(err, errNotStored) {
		return nil
	}
	return err
}

var errNotStored = errors.New("the card does not return an object as it was written")

// putBack writes a data object and reads it back.
func putBack(t transmitter, tag uint32, value []byte) error {
	if err := put(t, tag, value); err != nil {
		return err
	}
	stored, err := get(t, tag)
	defer clear(stored)
	if err == nil && !bytes.Equal(stored, value) {
		err = errNotStored
	}
	return err
}

// force brings the management key into force.
func (s *Session) force(algorithm byte, key []byte) error {
	data := append([]byte{algorithm, refManagement, byte(len(key))}, key...)
	defer clear(data)
	_, err := send(s.raw, insSetManagementKey, 0xff, 0xff, data)
	return err
}

// keep tests the management key that is in force now, and removes the last one.
func (s *Session) keep(key, before []byte) error {
	if err := s.authenticate(key); err != nil {
		return err
	}
	last := tlv(tagProtectedKey, key)
	defer clear(last)
	if bytes.Equal(before, last) {
		return nil
	}
	return put(s.raw, objectPrinted, tlv(tagProtected, last))
}

// undo restores both objects after the card has refused a step with err, so that no key
// stays on the card that is not in force. After any other failure either key may be.
func (s *Session) undo(printed, admin []byte, err error) error {
	_, refused := statusOf(err)
	if _, unsupported := fault.AsError(err); !refused && !unsupported {
		return err
	}
	for tag, value := range map[uint32][]byte{objectPrinted: printed, objectAdmin: admin} {
		_ = put(s.raw, tag, value) // the card may not store this one at all
	}
	return err
}

// Fields of objectAdmin (ykman's PivmanData): 80 holds them, 81 are flags.
const (
	tagAdmin      = 0x80
	tagAdminFlags = 0x81
	flagProtected = 0x02 // the management key is in objectPrinted
)

func adminKeeps() []byte { return tlv(tagAdmin, tlv(tagAdminFlags, []byte{flagProtected})) }

// keepsManagement reports whether objectAdmin has the flag that the card stores its
// management key.
func keepsManagement(admin []byte) bool {
	all, _ := inside(admin, tagAdmin)
	for _, f := range all {
		if f.tag == tagAdminFlags && len(f.value) > 0 {
			return f.value[0]&flagProtected != 0
		}
	}
	return false
}
