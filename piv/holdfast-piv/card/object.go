package card

import "bytes"

// Data objects by tag (NIST SP 800-73-4 part 1, table 3; the second is Yubico's,
// see ykman's pivman).
const (
	objectPrinted = 0x5fc109 // Printed Information: readable with the PIN, so that the management key is kept here
	objectAdmin   = 0x5fff00 // flags for PIN, PUK and management key
)

// Tags in objectPrinted, as in ykman and yubico-piv-tool, and one of our own, which
// those ignore: the key that is about to replace the other.
const (
	tagProtected    = 0x88
	tagProtectedKey = 0x89
	tagProtectedNew = 0x8a
)

func objectName(tag uint32) []byte {
	return []byte{0x5c, 3, byte(tag >> 16), byte(tag >> 8), byte(tag)}
}

// get reads a data object. A missing object is empty.
func get(t transmitter, tag uint32) ([]byte, error) {
	answer, err := send(t, insGetData, 0x3f, 0xff, objectName(tag))
	if status, ok := statusOf(err); ok && status == statusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return only(answer, 0x53)
}

// put writes a data object, for which the management key must have been proved. An
// empty value removes the object.
func put(t transmitter, tag uint32, value []byte) error {
	data := append(objectName(tag), tlv(0x53, value)...)
	defer clear(data)
	_, err := send(t, insPutData, 0x3f, 0xff, data)
	return err
}

// protectedKeys returns the management keys that the card keeps: one, or two after an
// interrupted set-up. The PIN must have been proved. The caller wipes them.
func (s *Session) protectedKeys() ([][]byte, error) {
	printed, err := get(s.raw, objectPrinted)
	if err != nil || len(printed) == 0 {
		return nil, err
	}
	defer clear(printed)
	return parseProtected(printed), nil
}

// parseProtected returns copies of the keys in objectPrinted. An object of another
// form holds none: it may be used for its standard purpose.
func parseProtected(b []byte) [][]byte {
	all, _ := inside(b, tagProtected)
	var kept [][]byte
	for _, f := range all {
		size := len(f.value)
		if (f.tag == tagProtectedKey || f.tag == tagProtectedNew) && (size == 16 || size == 24 || size == 32) {
			kept = append(kept, bytes.Clone(f.value))
		}
	}
	return kept
}
