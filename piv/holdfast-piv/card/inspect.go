package card

import (
	"fmt"

	"holdfast/internal/keys"
	"holdfast/piv/wire"
)

// inspect replies with everything that the card reports without a PIN.
func (s *Session) inspect(_ *wire.Request, reply *wire.Reply) error {
	c := &keys.Card{Serial: s.serial, Reader: s.reader, State: keys.StateReady, Firmware: s.version()}
	if err := s.secrets(c); err != nil {
		return err
	}
	for _, name := range slotNames() {
		slot, err := slotOf(name)
		if err != nil {
			return err
		}
		found, err := s.look(slot)
		if _, failed := codeOf(err); failed {
			return err
		}
		if err != nil {
			found = &keys.CardSlot{Slot: name} // the slot holds a key of an unknown kind
		}
		if found != nil {
			c.Slots = append(c.Slots, *found)
		}
	}
	reply.Card = c
	return s.attester(reply)
}

// attester replies with the certificate of the key that signs attestations.
func (s *Session) attester(reply *wire.Reply) error {
	if !s.since(4, 3, 0) {
		return nil
	}
	certificate, err := s.yk.AttestationCertificate()
	if _, failed := codeOf(err); failed {
		return err
	}
	if err == nil {
		reply.Attester = certificate.Raw
	}
	return nil
}

// secrets reads the state of PIN, PUK and management key.
func (s *Session) secrets(c *keys.Card) (err error) {
	if c.PINTries, err = s.tries(refPIN); err != nil {
		return err
	}
	if c.PUKTries, err = s.tries(refPUK); err != nil {
		return err
	}
	for ref, is := range map[byte]**bool{refPIN: &c.DefaultPIN, refPUK: &c.DefaultPUK, refManagement: &c.DefaultManagement} {
		if *is, err = s.factory(ref); err != nil {
			return err
		}
	}
	admin, err := get(s.raw, objectAdmin)
	c.ProtectedManagement = keepsManagement(admin)
	return err
}

// slotNames lists the slots for keys of a card's user.
func slotNames() []string {
	all := []string{"9a", "9c", "9d", "9e"}
	for n := 0x82; n <= 0x95; n++ {
		all = append(all, fmt.Sprintf("%x", n))
	}
	return all
}
