package pivcard

import (
	"bytes"
	"testing"
)

// TestManagementKeys changes the key to one of each kind and shows it, in both
// ways that there are.
func TestManagementKeys(t *testing.T) {
	c := NewCard(Options{})
	s := direct(t, c)
	alg, key := byte(algTDES), DefaultManagementKey()
	for _, n := range []byte{algAES128, algAES192, algAES256, algTDES} {
		set := append([]byte{n, slotManagement, byte(managementSize[n])}, bytes.Repeat([]byte{n, 0x5c}, managementSize[n]/2)...)
		s.want(ok, Select, 4, 0, managementAID...)
		s.want(ok, Select, 4, 0, pivAID...)
		s.want(notSatisfied, SetManagementKey, 0xff, 0xff, set...)
		s.manage(notSatisfied, alg, bytes.Repeat([]byte{1, 2}, len(key)/2))
		s.want(notSatisfied, SetManagementKey, 0xff, 0xff, set...)
		s.manage(ok, alg, key)
		s.want(wrongParameters, SetManagementKey, 0xff, 0x00, set...)
		s.want(wrongData, SetManagementKey, 0xff, 0xff, set[:len(set)-1]...)
		s.want(ok, SetManagementKey, 0xff, 0xff, set...)
		alg, key = n, set[3:]
		challenge := s.want(ok, Authenticate, alg, slotManagement, 0x7c, 2, 0x81, 0)[4:]
		blockOf(t, alg, key).Encrypt(challenge, challenge)
		s.want(ok, Authenticate, alg, slotManagement, tlv(0x7c, tlv(0x82, challenge))...)
		s.want(notSatisfied, Authenticate, alg, slotManagement, tlv(0x7c, tlv(0x82, challenge))...)
	}
	s.want(wrongParameters, Authenticate, algAES128, slotManagement, 0x7c, 2, 0x80, 0)
	s.want(ok, Authenticate, 0, slotManagement, 0x7c, 2, 0x80, 0) // 0 is triple DES
	s.want(wrongData, Authenticate, algTDES, slotManagement, 0x7d, 0)
}

// TestWitnessIsNoChallenge tries to have the card encrypt its own challenge.
func TestWitnessIsNoChallenge(t *testing.T) {
	s := direct(t, NewCard(Options{}))
	challenge := s.want(ok, Authenticate, algTDES, slotManagement, 0x7c, 2, 0x81, 0)[4:]
	s.want(notSatisfied, Authenticate, algTDES, slotManagement, tlv(0x7c, tlv(0x80, challenge), tlv(0x81, challenge))...)
	witness := s.want(ok, Authenticate, algTDES, slotManagement, 0x7c, 2, 0x80, 0)[4:]
	s.want(notSatisfied, Authenticate, algTDES, slotManagement, tlv(0x7c, tlv(0x82, witness))...)
}

func TestManagementOfFirmware(t *testing.T) {
	set := append([]byte{algAES128, slotManagement, 16}, make([]byte, 16)...)
	for firmware, c := range map[Firmware]struct {
		alg byte
		aes status
	}{{5, 3, 0}: {algTDES, wrongData}, {5, 4, 3}: {algTDES, ok}, {5, 7, 1}: {algAES192, ok}} {
		s := direct(t, NewCard(Options{Firmware: firmware}))
		meta, err := fields(s.want(ok, GetMetadata, 0, slotManagement))
		if err != nil || meta[metaAlgorithm][0] != c.alg || meta[metaDefault][0] != 1 {
			t.Errorf("firmware %v: metadata %x, %v", firmware, meta, err)
		}
		s.manage(ok, c.alg, DefaultManagementKey())
		s.want(c.aes, SetManagementKey, 0xff, 0xff, set...)
	}
}

// TestDefaultFlags asks about PIN, PUK and management key, as delivered and
// after a change.
func TestDefaultFlags(t *testing.T) {
	for want, o := range map[byte]Options{
		1: {},
		0: {PIN: "271828", PUK: "31415926", Manage: bytes.Repeat([]byte{9}, 16)},
	} {
		c := NewCard(o)
		c.SetPINLeft(2)
		c.SetPUKLeft(1)
		s := direct(t, c)
		for _, slot := range []byte{refPIN, refPUK, slotManagement} {
			meta, err := fields(s.want(ok, GetMetadata, 0, slot))
			if err != nil || meta[metaDefault][0] != want {
				t.Errorf("%x: metadata %x, %v, want default %d", slot, meta, err, want)
			}
			if slot == refPIN && !bytes.Equal(meta[metaTries], []byte{3, 2}) || slot == refPUK && !bytes.Equal(meta[metaTries], []byte{3, 1}) {
				t.Errorf("%x: tries %x", slot, meta[metaTries])
			}
		}
		s.want(noReference, GetMetadata, 0, 0x9a)
	}
}
