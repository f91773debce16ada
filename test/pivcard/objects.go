package pivcard

import (
	"bytes"
	"slices"
)

// Tags of data objects (SP 800-73-4 part 1, table 3).
const (
	objectDiscovery   = 0x7e
	ObjectPrinted     = 0x5fc109
	ObjectAttestation = 0x5fff01
)

// maxObject is what a YubiKey takes in one object.
const maxObject = 3063

// private lists the objects that are read with a verified PIN only: facial
// image, fingerprints, iris and printed information.
var private = []uint32{0x5fc108, 0x5fc103, 0x5fc121, ObjectPrinted}

// discovery names the application and says that the PIN is its own
// (SP 800-73-4 part 1, 3.3.2).
func discovery() []byte {
	return tlv(objectDiscovery, tlv(0x4f, pivAID), tlv(0x5f2f, []byte{0x40, 0x00}))
}

// objectTag reads the tag list that starts GET DATA and PUT DATA, and returns
// what follows it.
func objectTag(cmd command) (tag uint32, rest []byte, s status) {
	if cmd.p1 != 0x3f || cmd.p2 != 0xff {
		return 0, nil, wrongParameters
	}
	list, value, rest, err := next(cmd.data)
	if err != nil || list != 0x5c || len(value) == 0 || len(value) > 3 {
		return 0, nil, wrongData
	}
	for _, b := range value {
		tag = tag<<8 | uint32(b)
	}
	return tag, rest, ok
}

// getData is GET DATA (SP 800-73-4 part 2, 3.1.2).
func (c *Card) getData(cmd command) ([]byte, status) {
	tag, _, s := objectTag(cmd)
	if s != ok {
		return nil, s
	}
	if tag == objectDiscovery {
		return discovery(), ok
	}
	if slices.Contains(private, tag) && !c.verified {
		return nil, notSatisfied
	}
	value, there := c.objects[tag]
	if !there {
		return nil, notFound
	}
	return tlv(0x53, value), ok
}

// putData is PUT DATA (SP 800-73-4 part 2, 3.3.1). An empty value removes.
func (c *Card) putData(cmd command) ([]byte, status) {
	if !c.managing {
		return nil, notSatisfied
	}
	tag, rest, s := objectTag(cmd)
	if s != ok {
		return nil, s
	}
	wrapper, value, _, err := next(rest)
	switch {
	case slices.Contains(c.Lacks, tag):
		return nil, notFound
	case err != nil || wrapper != 0x53 || tag == objectDiscovery:
		return nil, wrongData
	case len(value) > maxObject:
		return nil, noSpace
	case len(value) == 0:
		delete(c.objects, tag)
	default:
		c.objects[tag] = bytes.Clone(value)
	}
	return nil, ok
}
