package attestation

import (
	"fmt"

	"holdfast/internal/keys"
)

// A Note is one fact that the owner of a YubiKey should know, and the next step.
type Note struct {
	Advisory      string // Yubico's number; empty when the note is not from an advisory
	Message, Hint string
	Weak          bool // new keys would be weak: reject them
}

// An advisory is about the firmware from one version to before another.
type advisory struct {
	number       string
	from, before Firmware
	rsa          bool // about RSA, else about ECDSA
	weak         bool
	fact, hint   string // fact follows "firmware 4.3.4 "
}

func advisories() []advisory {
	return []advisory{roca(), {
		number: "YSA-2019-02", from: Firmware{4, 4, 2}, before: Firmware{4, 4, 5}, weak: true,
		fact: "makes ECDSA signatures with too little randomness after it was plugged in, which can give the key away (YSA-2019-02)",
		hint: "replace the YubiKey, or make RSA keys: firmware 4.4.5 and newer does not have the flaw",
	}, {
		number: "YSA-2024-03", before: Firmware{5, 7, 0}, // CVE-2024-45678, severity moderate
		fact: "lets an attacker with the YubiKey and laboratory equipment extract ECDSA keys (EUCLEAK, YSA-2024-03)",
		hint: "replace the keys if it was out of your hands; firmware 5.7.0 and newer does not have the flaw",
	}}
}

// roca is CVE-2017-15361.
func roca() advisory {
	return advisory{
		number: "YSA-2017-01", from: Firmware{4, 2, 6}, before: Firmware{4, 3, 5}, rsa: true, weak: true,
		fact: "makes RSA keys whose private half can be computed (ROCA, YSA-2017-01)",
		hint: "make ES256 or ES384 keys, or use a YubiKey with firmware 4.3.5 or newer",
	}
}

func (a advisory) covers(f Firmware) bool { return !f.Less(a.from) && f.Less(a.before) }

// Warnings returns the known flaws of keys of an algorithm, or of any algorithm for "",
// on a YubiKey with the firmware. For a firmware that is not a version it returns a
// note that it was not compared.
func Warnings(firmware string, algorithm keys.Algorithm) []Note {
	version, err := ParseFirmware(firmware)
	if err != nil {
		return []Note{{
			Message: fmt.Sprintf("firmware %.20q is no version, and was not compared with Yubico's advisories", firmware),
			Hint:    "look the card up at yubico.com/support/security-advisories",
		}}
	}
	var notes []Note
	for _, a := range advisories() {
		if a.covers(version) && (algorithm == "" || a.rsa == (algorithm == keys.RS256)) {
			notes = append(notes, Note{a.number, fmt.Sprintf("firmware %s %s", version, a.fact), a.hint, a.weak})
		}
	}
	return notes
}
