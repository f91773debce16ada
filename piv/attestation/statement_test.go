package attestation_test

import (
	"bytes"
	"crypto/x509/pkix"
	"math/big"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/attestation"
)

// Verify and ParseStatement reject extensions that are missing, duplicate or not as
// Yubico writes them.
func TestMalformedStatements(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*card)
		fact   string
	}{
		{"no firmware", func(c *card) { c.says(3, nil) }, "no firmware version of three bytes"},
		{"empty firmware", func(c *card) { c.says(3, []byte{}) }, "no firmware version of three bytes"},
		{"firmware of two bytes", func(c *card) { c.says(3, []byte{5, 4}) }, "no firmware version of three bytes"},
		{"firmware of four bytes", func(c *card) { c.says(3, []byte{5, 4, 3, 0}) }, "no firmware version of three bytes"},
		{"firmware as DER", func(c *card) { c.says(3, []byte{4, 3, 5, 4, 3}) }, "no firmware version of three bytes"},
		{"firmware twice", func(c *card) { c.repeat(3) }, "not a certificate"},

		{"no serial", func(c *card) { c.says(7, nil) }, "no serial number"},
		{"empty serial", func(c *card) { c.says(7, []byte{}) }, "no serial number"},
		{"serial not DER", func(c *card) { c.says(7, []byte{0, 188, 97, 78}) }, "no serial number"},
		{"serial with something after", func(c *card) { c.says(7, []byte{2, 1, 1, 0}) }, "no serial number"},
		{"serial cut short", func(c *card) { c.says(7, []byte{2, 4, 1}) }, "no serial number"},
		{"serial not the shortest way", func(c *card) { c.says(7, []byte{2, 2, 0, 1}) }, "no serial number"},
		{"serial negative", func(c *card) { c.says(7, []byte{2, 1, 0xff}) }, "no serial number"},
		{"serial zero", func(c *card) { c.says(7, []byte{2, 1, 0}) }, "no serial number"},
		{"serial of 33 bits", func(c *card) { c.says(7, []byte{2, 5, 1, 0, 0xbc, 0x61, 0x4e}) }, "no serial number"},
		{"serial of 72 bits", func(c *card) { c.says(7, []byte{2, 9, 1, 0, 0, 0, 0, 0, 0xbc, 0x61, 0x4e}) }, "no serial number"},
		{"serial as text", func(c *card) { c.says(7, []byte("\x0c\x0812345678")) }, "no serial number"},
		{"serial twice", func(c *card) { c.repeat(7) }, "not a certificate"},
		{"another serial first", func(c *card) {
			c.extensions = append([]pkix.Extension{{Id: arc(7), Value: []byte{2, 1, 1}}}, c.extensions...)
		}, "not a certificate"},

		{"no policies", func(c *card) { c.says(8, nil) }, "no PIN and touch policy"},
		{"one policy", func(c *card) { c.says(8, []byte{2}) }, "no PIN and touch policy"},
		{"three policies", func(c *card) { c.says(8, []byte{2, 2, 2}) }, "no PIN and touch policy"},
		{"PIN policy 0", func(c *card) { c.says(8, []byte{0, 2}) }, "not known here: 0002"},
		{"PIN policy 6", func(c *card) { c.says(8, []byte{6, 2}) }, "not known here: 0602"},
		{"touch policy 0", func(c *card) { c.says(8, []byte{2, 0}) }, "not known here: 0200"},
		{"touch policy 4", func(c *card) { c.says(8, []byte{2, 4}) }, "not known here: 0204"},
		{"touch policy 255", func(c *card) { c.says(8, []byte{2, 255}) }, "not known here: 02ff"},
		{"policies twice", func(c *card) { c.repeat(8) }, "not a certificate"},

		{"empty form factor", func(c *card) { c.says(9, []byte{}) }, "form factor"},
		{"form factor of two bytes", func(c *card) { c.says(9, []byte{1, 1}) }, "form factor"},
		{"form factor twice", func(c *card) { c.repeat(9) }, "not a certificate"},

		{"no subject", func(c *card) { c.subject = pkix.Name{} }, "names no slot"},
		{"another subject", func(c *card) { c.subject.CommonName = "Yubico PIV Attestation" }, "names no slot"},
		{"no slot", func(c *card) { c.subject.CommonName = "YubiKey PIV Attestation " }, "names no slot for keys"},
		{"slot f9", func(c *card) { c.subject.CommonName = "YubiKey PIV Attestation f9" }, "names no slot for keys"},
		{"slot 9b", func(c *card) { c.subject.CommonName = "YubiKey PIV Attestation 9b" }, "names no slot for keys"},
		{"slot with something after", func(c *card) { c.subject.CommonName = "YubiKey PIV Attestation 9a " }, "names no slot for keys"},
		{"two names", func(c *card) {
			c.subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: []int{2, 5, 4, 3}, Value: "YubiKey PIV Attestation 9c"}, {Type: []int{2, 5, 4, 3}, Value: "YubiKey PIV Attestation 9a"}}
		}, "names no slot"},
		{"name and organisation", func(c *card) { c.subject.Organization = []string{"Yubico"} }, "names no slot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			c.change(s.card)
			got, err := s.verify()
			refused(t, got, err, fault.BadRequest, c.fact)
			got, err = attestation.ParseStatement(s.slot)
			refused(t, got, err, fault.BadRequest, c.fact)
		})
	}
}

// repeat has the card say the same twice.
func (c *card) repeat(n int) {
	for _, e := range c.extensions {
		if e.Id.Equal(arc(n)) {
			c.extensions = append(c.extensions, e)
			return
		}
	}
}

// All that can be said, and how it is shown.
func TestParseStatement(t *testing.T) {
	slots := []string{"9a", "9c", "9d", "9e", "82", "95"}
	pins := []keys.Policy{keys.PolicyNever, keys.PolicyOnce, keys.PolicyAlways, attestation.PolicyMatchOnce, attestation.PolicyMatchAlways}
	touches := []keys.Policy{keys.PolicyNever, keys.PolicyAlways, keys.PolicyCached}
	s := newScene(t)
	for _, slot := range slots {
		for i, pin := range pins {
			for j, touch := range touches {
				s.card.subject.CommonName = "YubiKey PIV Attestation " + slot
				s.card.says(8, []byte{byte(i + 1), byte(j + 1)})
				got, err := attestation.ParseStatement(s.card.state(t))
				if err != nil || got.Slot != slot || got.PINPolicy != pin || got.TouchPolicy != touch || got.FIPS || got.Root != "" {
					t.Errorf("%s, %s, %s: got %+v, %v", slot, pin, touch, got, err)
				}
			}
		}
	}
}

func TestParseStatementOfSeries(t *testing.T) {
	s := newScene(t)
	s.card.says(7, mustDER(t, big.NewInt(1<<32-1)))
	s.card.says(9, []byte{0x83}) // the upper bits are the series'
	s.card.says(10, []byte{})
	s.card.key = edKey(t)
	got, err := attestation.ParseStatement(s.card.state(t))
	if err != nil || !got.FIPS || got.Serial != 1<<32-1 || got.FormFactor != 0x83 {
		t.Errorf("got %+v, %v", got, err)
	}

	s.card.says(9, nil)
	if got, err = attestation.ParseStatement(s.card.state(t)); err != nil || got.FormFactor != 0 {
		t.Errorf("without form factor: got %+v, %v", got, err)
	}
}

func TestParseStatementOfUnknownKey(t *testing.T) {
	der := newScene(t).card.state(t)
	ecPublicKey := []byte{0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01} // RFC 5480, section 2.1.1
	unknown := bytes.Replace(der, ecPublicKey, append(ecPublicKey[:8:8], 0x7f), 1)
	if bytes.Equal(der, unknown) {
		t.Fatal("no such key in the statement")
	}
	got, err := attestation.ParseStatement(unknown)
	refused(t, got, err, fault.BadRequest, "a key of an unknown kind")
}
