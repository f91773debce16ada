package card

import "errors"

// metadata describes a PIN, a PUK or the management key (Yubico's GET METADATA, from
// firmware 5.3).
type metadata struct {
	algorithm byte  // of the management key; 0 otherwise
	factory   *bool // it has the factory's value
	tries     *int  // left
}

// metadataOf asks for the metadata of the secret with the reference ref.
func metadataOf(t transmitter, ref byte) (metadata, error) {
	answer, err := send(t, insGetMetadata, 0, ref, nil)
	if err != nil {
		return metadata{}, err
	}
	return parseMetadata(answer)
}

// parseMetadata reads tags 01 (algorithm), 05 (the factory's value) and 06 (tries:
// all, left). Others are ignored; a known one of another size is an error.
func parseMetadata(b []byte) (metadata, error) {
	all, err := fields(b)
	if err != nil {
		return metadata{}, err
	}
	var m metadata
	for _, f := range all {
		size := map[byte]int{0x01: 1, 0x05: 1, 0x06: 2}[f.tag]
		if size != 0 && len(f.value) != size {
			return metadata{}, errors.New("metadata of another size")
		}
		switch f.tag {
		case 0x01:
			m.algorithm = f.value[0]
		case 0x05:
			factory := f.value[0] != 0
			m.factory = &factory
		case 0x06:
			tries := int(f.value[1])
			m.tries = &tries
		}
	}
	return m, nil
}
