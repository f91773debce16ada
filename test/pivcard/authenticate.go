package pivcard

import "bytes"

// authenticate is GENERAL AUTHENTICATE (SP 800-73-4 part 2, 3.2.4): the
// management key is shown, or a slot's key is used.
func (c *Card) authenticate(cmd command) ([]byte, status) {
	outer, value, _, err := next(cmd.data)
	if err != nil || outer != 0x7c {
		return nil, wrongData
	}
	template, err := fields(value)
	if err != nil {
		return nil, wrongData
	}
	if cmd.p2 == slotManagement {
		return c.authenticateManager(cmd, template)
	}
	k := c.keys[cmd.p2]
	switch {
	case k == nil:
		return nil, noReference
	case k.alg != cmd.p1:
		return nil, wrongParameters
	}
	if s := c.permit(k); s != ok {
		return nil, s
	}
	return c.use(k, template)
}

// permit asks for what the key's policies want. A PIN of the policy "always"
// is used up by it, whatever becomes of the command.
func (c *Card) permit(k *key) status {
	switch {
	case k.pin == PINOnce && !c.verified, k.pin == PINAlways && !c.fresh:
		return notSatisfied
	case k.touch != TouchNever && !c.touchedFor(k.touch):
		return touchWanted
	}
	c.fresh = false
	return ok
}

func (c *Card) use(k *key, template map[uint32][]byte) ([]byte, status) {
	var result []byte
	s := wrongData
	if digest := template[0x81]; len(digest) > 0 {
		result, s = k.sign(c.spoiled(digest))
	} else if point := template[0x85]; len(point) > 0 {
		result, s = k.agree(point)
	}
	if s != ok {
		return nil, s
	}
	return tlv(0x7c, tlv(0x82, result)), ok
}

// spoiled returns what is signed instead of digest when a fault wants that.
func (c *Card) spoiled(digest []byte) []byte {
	if !c.spoil {
		return digest
	}
	other := bytes.Clone(digest)
	other[len(other)-1] ^= 1
	return other
}
