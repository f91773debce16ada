package piv_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv"
	"holdfast/piv/attestation"
	"holdfast/test/pivcard"
)

// TestCreatePlaces: slots and policies are those asked for, or the usual ones, and
// what is in a slot is not lost unless that was said.
func TestCreatePlaces(t *testing.T) {
	_, b, cards := start(t, 1)
	place := func(slot string, pin, touch keys.Policy) keys.Place {
		return keys.Place{Serial: 1, Slot: slot, PINPolicy: pin, TouchPolicy: touch, Attested: true}
	}
	for _, test := range []struct {
		name string
		ask  keys.OnCard
		pin  string
		want keys.Place
	}{
		{"nothing said", keys.OnCard{}, "", place("9a", keys.PolicyNever, keys.PolicyNever)},
		{"a PIN", keys.OnCard{}, rightPIN, place("82", keys.PolicyOnce, keys.PolicyNever)},
		{"policies", keys.OnCard{PINPolicy: keys.PolicyAlways, TouchPolicy: keys.PolicyCached}, "", place("83", keys.PolicyAlways, keys.PolicyCached)},
		{"a slot", keys.OnCard{Slot: "9c", Serial: 1}, "", place("9c", keys.PolicyNever, keys.PolicyNever)},
		{"the next free one", keys.OnCard{}, "", place("84", keys.PolicyNever, keys.PolicyNever)},
		{"a slot that is in use", keys.OnCard{Slot: "9a", Overwrite: true, PINPolicy: keys.PolicyOnce}, "", place("9a", keys.PolicyOnce, keys.PolicyNever)},
	} {
		test.ask.PIN = []byte(rightPIN)
		m, err := b.Create(soon(t), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, PIN: []byte(test.pin), Card: test.ask})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if *m.Card != test.want || m.PIN != (test.want.PINPolicy != keys.PolicyNever) || m.Imported {
			t.Errorf("%s: got %+v, PIN %v, want %+v", test.name, m.Card, m.PIN, test.want)
		}
		if err := b.Check(soon(t), m); err != nil {
			t.Errorf("%s: check: %v", test.name, err)
		}
	}
	made := cards[0].Count(pivcard.Generate)
	for name, test := range map[string]struct {
		change func(*keys.Template)
		want   fault.Kind
	}{
		"taken":               {func(t *keys.Template) { t.Card.Slot = "9a" }, fault.BadRequest},
		"no slot for keys":    {func(t *keys.Template) { t.Card.Slot = "f9" }, fault.BadRequest},
		"policy":              {func(t *keys.Template) { t.Card.TouchPolicy = keys.PolicyOnce }, fault.BadRequest},
		"PIN without use":     {func(t *keys.Template) { t.PIN, t.Card.PINPolicy = []byte(rightPIN), keys.PolicyNever }, fault.BadRequest},
		"two PINs":            {func(t *keys.Template) { t.PIN = []byte(wrongPIN) }, fault.BadRequest},
		"no PIN":              {func(t *keys.Template) { t.Card.PIN = nil }, fault.PINRequired},
		"wrong PIN":           {func(t *keys.Template) { t.Card.PIN = []byte(wrongPIN) }, fault.PINRequired},
		"other card":          {func(t *keys.Template) { t.Card.Serial = 9 }, fault.DeviceAbsent},
		"wrong management":    {func(t *keys.Template) { t.Card.ManagementKey = make([]byte, 24) }, fault.BadRequest},
		"RSA that is too big": {func(t *keys.Template) { t.Algorithm, t.RSABits = keys.RS256, 4096 }, fault.Unsupported},
	} {
		template := keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Card: keys.OnCard{PIN: []byte(rightPIN)}}
		test.change(&template)
		_, err := b.Create(soon(t), template)
		wantError(t, name, err, test.want)
	}
	if got := cards[0].Count(pivcard.Generate); got != made {
		t.Errorf("%d keys were made by requests that were refused", got-made)
	}
}

// TestFactoryCard: no key is made on a card with factory secrets.
func TestFactoryCard(t *testing.T) {
	rig := pivcard.Start(t, 2)
	card := rig.NewCard(pivcard.Options{Serial: 1})
	rig.Insert(card)
	b := openPIV(t, config(t, rig))
	_, err := b.Create(soon(t), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Card: keys.OnCard{PIN: []byte("123456")}})
	wantError(t, "create", err, fault.BadRequest, "factory", "holdfast piv setup --card 1")
	list, err := b.Cards(soon(t))
	if err != nil || len(list) != 1 || len(list[0].Notes) < 1 || !strings.Contains(list[0].Notes[0].Message, "PIN, PUK and management key") || list[0].Attests == nil || !*list[0].Attests || list[0].DefaultPIN == nil || !*list[0].DefaultPIN {
		t.Fatalf("cards: %+v, %v, want a note on the factory's secrets, and that it attests before it has a key", list, err)
	}
	for name, s := range map[string]keys.CardSetUp{
		"the same PIN":    {PIN: []byte("123456"), PUK: []byte(rightPUK)},
		"the same PUK":    {PIN: []byte(rightPIN), PUK: []byte("12345678")},
		"a short PIN":     {PIN: []byte("12345"), PUK: []byte(rightPUK)},
		"a malformed old": {PIN: []byte(rightPIN), PUK: []byte(rightPUK), OldPIN: []byte("1")},
	} {
		wantError(t, name, b.SetUp(soon(t), 1, s), fault.BadRequest)
	}
	setUp(t, b, 1)
	m := create(t, b, keys.OnCard{})
	list, err = b.Cards(soon(t))
	if err != nil || len(list) != 1 {
		t.Fatalf("cards: %+v, %v", list, err)
	}
	c := list[0]
	if *c.DefaultPIN || *c.DefaultPUK || *c.DefaultManagement || !c.ProtectedManagement || c.Attests == nil || !*c.Attests || len(c.Slots) != 1 || !bytes.Equal(c.Slots[0].Public, m.Public) {
		t.Errorf("set up: %+v, want no default, an attested key in one slot", c)
	}
	if len(c.Notes) != 1 || !bytes.Contains([]byte(c.Notes[0].Message), []byte("EUCLEAK")) {
		t.Errorf("notes: %+v, want the firmware's alone", c.Notes)
	}
}

// TestAttestation: what the card states about a new key is compared with the key.
func TestAttestation(t *testing.T) {
	rig, b, cards := start(t, 1)
	card := cards[0]
	strange, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ask := keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Card: keys.OnCard{Slot: "9a", Overwrite: true, PIN: []byte(rightPIN)}}
	for name, forge := range map[string]func(*pivcard.Statement){
		"serial":   func(s *pivcard.Statement) { s.Serial++ },
		"slot":     func(s *pivcard.Statement) { s.Slot = 0x9c },
		"firmware": func(s *pivcard.Statement) { s.Firmware = pivcard.Firmware{5, 7, 1} },
		"PIN":      func(s *pivcard.Statement) { s.PIN = 3 },
		"touch":    func(s *pivcard.Statement) { s.Touch = 2 },
		"key":      func(s *pivcard.Statement) { s.Public = strange.Public() },
		"expired":  func(s *pivcard.Statement) { s.NotAfter = time.Now().Add(-time.Hour) },
	} {
		card.Forge(forge)
		_, err := b.Create(soon(t), ask)
		wantError(t, name, err, fault.KeyMismatch, "a new key is in slot 9a of card 1", "holdfast key adopt NAME --slot 9a")
		card.Forge(nil)
	}
	b.Close() // lets go of the card
	c := config(t, rig)
	c.Roots = attestation.Genuine()
	strict := openPIV(t, c)
	card.Forget()
	_, err = strict.Create(soon(t), ask)
	wantError(t, "a card that is not genuine", err, fault.KeyMismatch, "piv-roots")
	if n := card.Count(pivcard.Generate) + card.PINTries(); n != 0 {
		t.Errorf("a card that is not genuine was sent %d GENERATE and VERIFY", n)
	}
	ask.Card.AllowUnattested = true
	m, err := strict.Create(soon(t), ask)
	if err != nil || m.Card.Attested || m.Imported {
		t.Fatalf("unattested by request: %+v, %v", m.Card, err)
	}
	if err := strict.Check(soon(t), m); err != nil {
		t.Error(err)
	}
	if list, err := strict.Cards(soon(t)); err != nil || list[0].Attests == nil || *list[0].Attests {
		t.Errorf("cards: %+v, %v, want that it does not attest", list, err)
	}
}

// TestAdopt: a key that is in a slot already is taken on when the card proves it,
// or when that is said not to matter.
func TestAdopt(t *testing.T) {
	_, b, cards := start(t, 1)
	made := create(t, b, keys.OnCard{PINPolicy: keys.PolicyAlways, TouchPolicy: keys.PolicyCached})
	file, err := b.Export(made)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(soon(t), made); err != nil {
		t.Error(err)
	}
	m, err := b.Import(soon(t), adopting(rightPIN), file, false)
	if err != nil || *m.Card != *made.Card || !m.PIN || m.Imported {
		t.Errorf("import: got %+v, %v, want %+v", m.Card, err, made.Card)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cards[0].SetKey(0x83, pivcard.Key{Private: private, Imported: true})
	other := keys.Material{Backend: "piv", Public: publicOf(t, private.Public())}
	foreign := bytes.Replace(reencode(t, b, m, other.Public), []byte("Slot: 9a"), []byte("Slot: 83"), 1)
	_, err = b.Import(soon(t), adopting(rightPIN), foreign, false)
	wantError(t, "a key that was put into the card", err, fault.Unsupported, "prove", "--allow-imported")
	m, err = b.Import(soon(t), adopting(rightPIN), foreign, true)
	if err != nil || !m.Imported || m.Card.Attested || m.Card.Slot != "83" {
		t.Fatalf("allowed: got %+v, %v, want it imported", m, err)
	}
	if err := b.Check(soon(t), m); err != nil {
		t.Error(err)
	}
	empty := bytes.Replace(foreign, []byte("Slot: 83"), []byte("Slot: 95"), 1)
	_, err = b.Import(soon(t), adopting(rightPIN), empty, true)
	wantError(t, "an empty slot", err, fault.KeyLost)
	wrong := bytes.Replace(foreign, []byte("Slot: 83"), []byte("Slot: 9a"), 1)
	_, err = b.Import(soon(t), adopting(rightPIN), wrong, true)
	wantError(t, "another key in the slot", err, fault.KeyMismatch)
}

func adopting(pin string) keys.Template {
	return keys.Template{Purpose: keys.TLSClient, Card: keys.OnCard{PIN: []byte(pin)}}
}

// TestAdoptWantsPIN: what names a key on a card is no secret, so that only who
// knows the card's PIN takes the key on.
func TestAdoptWantsPIN(t *testing.T) {
	_, b, cards := start(t, 1)
	file, err := b.Export(create(t, b, keys.OnCard{PINPolicy: keys.PolicyNever}))
	if err != nil {
		t.Fatal(err)
	}
	cards[0].Forget()
	_, err = b.Import(soon(t), keys.Template{Purpose: keys.TLSClient}, file, true)
	wantError(t, "no PIN", err, fault.PINRequired, "card 1", "PIN")
	_, err = b.Import(soon(t), adopting("12"), file, true)
	wantError(t, "what is no PIN", err, fault.BadRequest)
	if n := cards[0].PINTries(); n != 0 {
		t.Errorf("the card was sent %d PINs", n)
	}
	_, err = b.Import(soon(t), adopting(wrongPIN), file, true)
	wantError(t, "a wrong PIN", err, fault.PINRequired, "2 tries")
	if _, err = b.Import(soon(t), adopting(rightPIN), file, false); err != nil {
		t.Errorf("the card's PIN: %v", err)
	}
	cards[0].SetPINLeft(1)
	_, err = b.Import(soon(t), adopting(rightPIN), file, false)
	wantError(t, "the last try", err, fault.PINBlocked)
	if n := cards[0].PINTries(); n != 2 {
		t.Errorf("the card was sent %d PINs, want 2", n)
	}
}

// TestTriesLeft: an unlock spends tries of the card's PIN, and TriesLeft reports them.
func TestTriesLeft(t *testing.T) {
	_, b, cards := start(t, 1)
	m := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	cards[0].Forget()
	left := func(want int) {
		t.Helper()
		if got, err := b.TriesLeft(soon(t), m); err != nil || got == nil || *got != want {
			t.Errorf("tries left: got %v, %v, want %d", got, err, want)
		}
	}
	left(3)
	until := time.Now().Add(time.Hour)
	wantError(t, "a wrong PIN", b.Unlock(soon(t), m, []byte(wrongPIN), until), fault.PINRequired, "2 tries")
	left(2)
	if err := b.Unlock(soon(t), m, []byte(rightPIN), until); err != nil {
		t.Error(err)
	}
	b.Lock(&m)
	left(3)
	wantError(t, "what is no PIN", b.Unlock(soon(t), m, []byte("12"), until), fault.BadRequest)
	cards[0].SetPINLeft(1)
	left(1)
	wantError(t, "the last try", b.Unlock(soon(t), m, []byte(rightPIN), until), fault.PINBlocked, "unblock")
	if n := cards[0].PINTries(); n != 2 {
		t.Errorf("the card was sent %d PINs, want 2", n)
	}
}

// TestKeyExchanged: a key that is not in its slot any more is not used.
func TestKeyExchanged(t *testing.T) {
	_, b, cards := start(t, 1)
	m := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	create(t, b, keys.OnCard{Slot: "9a", Overwrite: true})
	tries := cards[0].PINTries()
	wantError(t, "check", b.Check(soon(t), m), fault.KeyMismatch)
	err := b.Unlock(soon(t), m, []byte(rightPIN), time.Now().Add(time.Hour))
	wantError(t, "unlock", err, fault.KeyMismatch, "slot 9a", "another key")
	if got := cards[0].PINTries(); got != tries {
		t.Error("the PIN was sent for a key that is not there")
	}
}

// TestFirmware: what a card can make, and should not, depends on its firmware.
func TestFirmware(t *testing.T) {
	for firmware, test := range map[pivcard.Firmware]struct {
		bits int
		want fault.Kind
	}{
		{4, 3, 4}: {2048, fault.Unsupported}, // ROCA
		{5, 4, 3}: {3072, fault.Unsupported},
		{5, 7, 1}: {3072, ""},
	} {
		rig := pivcard.Start(t, 2)
		rig.Insert(rig.NewCard(pivcard.Options{Serial: 1, Firmware: firmware}))
		b := openPIV(t, config(t, rig))
		setUp(t, b, 1)
		_, err := b.Create(soon(t), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.RS256, RSABits: test.bits, Card: keys.OnCard{PIN: []byte(rightPIN)}})
		wantError(t, firmware.String(), err, test.want)
		o := keys.OnCard{PINPolicy: keys.PolicyOnce}
		if !firmware.AtLeast(pivcard.Firmware{5, 3, 0}) {
			ask := keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Card: keys.OnCard{PIN: []byte(rightPIN)}}
			_, err := b.Create(soon(t), ask)
			wantError(t, firmware.String()+": any slot", err, fault.BadRequest, "cannot tell which of its slots are empty", "--slot")
			ask.Card.Slot = "82"
			_, err = b.Create(soon(t), ask)
			wantError(t, firmware.String()+": a slot that may be full", err, fault.BadRequest, "cannot tell whether slot 82 is empty", "--overwrite")
			o.Slot, o.Overwrite = "82", true
		}
		m := create(t, b, o)
		unlock(t, b, m)
		if err := sign(soon(t), b, m); err != nil {
			t.Errorf("%s: %v", firmware, err)
		}
		if err := b.Check(soon(t), m); err != nil {
			t.Errorf("%s: %v", firmware, err)
		}
	}
}

func publicOf(t *testing.T, public any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// reencode is m's file with another public key.
func reencode(t *testing.T, b *piv.PIV, m keys.Material, public []byte) []byte {
	t.Helper()
	m.Public = public
	file, err := b.Export(m)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// certificate makes a certificate of a public key's.
func certificate(t *testing.T, public any) []byte {
	t.Helper()
	signer, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, signer)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
