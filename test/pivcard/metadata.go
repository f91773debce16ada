package pivcard

import "cmp"

// Tags of GET METADATA (Yubico's extensions).
const (
	metaAlgorithm = 0x01
	metaPolicy    = 0x02
	metaOrigin    = 0x03
	metaPublic    = 0x04
	metaDefault   = 0x05
	metaTries     = 0x06
)

// metadata is GET METADATA: of the PIN (80), the PUK (81), the management key
// (9B) or a slot's key.
func (c *Card) metadata(cmd command) ([]byte, status) {
	switch cmd.p2 {
	case refPIN:
		return c.pin.metadata(), ok
	case refPUK:
		return c.puk.metadata(), ok
	case slotManagement:
		return c.manage.metadata(), ok
	}
	k := c.keys[cmd.p2]
	if k == nil {
		return nil, noReference
	}
	return k.metadata(), ok
}

func (s *secret) metadata() []byte {
	return join(tlv(metaAlgorithm, []byte{0xff}), tlv(metaDefault, flag(s.isDefault())),
		tlv(metaTries, []byte{byte(s.tries), byte(cmp.Or(s.claimed, s.left))}))
}

func (k managementKey) metadata() []byte {
	isDefault := string(k.value) == string(DefaultManagementKey())
	return join(tlv(metaAlgorithm, []byte{k.alg}), tlv(metaPolicy, []byte{0, k.touch}),
		tlv(metaDefault, flag(isDefault)))
}

func (k *key) metadata() []byte {
	origin := byte(1) // generated
	if k.imported {
		origin = 2
	}
	return join(tlv(metaAlgorithm, []byte{k.alg}), tlv(metaPolicy, []byte{k.pin, k.touch}),
		tlv(metaOrigin, []byte{origin}), tlv(metaPublic, encoded(k.private.Public())))
}

func join(parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func flag(set bool) []byte {
	if set {
		return []byte{1}
	}
	return []byte{0}
}
