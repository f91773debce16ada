package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"holdfast/client"
	"holdfast/internal/agentwire"
)

// softwareTPM marks a software TPM in every output.
const softwareTPM = "SOFTWARE TPM"

// softwareDevices returns the backends that no hardware protects. It notes when the
// agent does not say.
func (a *app) softwareDevices(ctx context.Context, c *client.Client) map[string]bool {
	status, err := c.Status(ctx)
	if err != nil {
		a.note("the agent does not say what its devices are: %v", err)
	}
	software := map[string]bool{}
	for _, d := range status.Devices {
		if d.Software {
			software[d.Backend] = true
		}
	}
	return software
}

func (a *app) printKeys(list []agentwire.Key, software map[string]bool) error {
	if len(list) == 0 {
		a.note("no keys; holdfast key create makes one")
		return nil
	}
	rows := [][]string{{"NAME", "PURPOSE", "ALGORITHM", "BACKEND", "OWNER", "CERTIFICATE", "NOTES"}}
	for _, k := range list {
		rows = append(rows, []string{
			k.Name, k.Purpose, algorithmOf(k), backendOf(k), ownerOf(k), certificateOf(k), strings.Join(notesOf(k, software), ", "),
		})
	}
	return table(a.stdout, rows...)
}

func (a *app) printKey(k agentwire.Key, software map[string]bool) error {
	rows := [][]string{
		{"name", k.Name},
		{"purpose", k.Purpose},
		{"algorithm", fmt.Sprintf("%s (%s)", algorithmOf(k), k.Scheme)},
		{"backend", k.Backend},
		{"owner", ownerOf(k)},
		{"created", when(k.Created)},
		{"public key", fingerprint(k.PublicKey)},
		{"certificate", certificateOf(k)},
	}
	rows = append(rows, placeRows(k)...)
	if k.Confirm != nil {
		rows = append(rows, []string{"confirm", confirmOf(*k.Confirm)})
	}
	for _, s := range k.Servers {
		rows = append(rows, []string{"server", s.Address})
	}
	for _, note := range notesOf(k, software) {
		rows = append(rows, []string{"note", note})
	}
	return table(a.stdout, rows...)
}

func algorithmOf(k agentwire.Key) string {
	if k.RSABits != 0 {
		return fmt.Sprintf("%s-%d", k.Algorithm, k.RSABits)
	}
	return k.Algorithm
}

func ownerOf(k agentwire.Key) string { return userName(k.Owner.User, k.Owner.UID) }

// userName shows a user by name, and by uid alone where there is none.
func userName(user string, uid uint32) string {
	if user == "" {
		return fmt.Sprintf("uid %d", uid)
	}
	return user
}

// fingerprint is the SHA-256 of a SubjectPublicKeyInfo, in the form of ssh-keygen.
func fingerprint(spki []byte) string {
	sum := sha256.Sum256(spki)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// certificateOf is the key's certificate in a few words.
func certificateOf(k agentwire.Key) string {
	if len(k.Chain) == 0 {
		return "none"
	}
	leaf, err := x509.ParseCertificate(k.Chain[0])
	if err != nil {
		return "damaged"
	}
	word := "until"
	if time.Now().After(leaf.NotAfter) {
		word = "EXPIRED on"
	}
	return fmt.Sprintf("%s %s %s", leaf.Subject, word, leaf.NotAfter.Local().Format("2006-01-02"))
}

// backendOf names the backend, and the card and slot of a key on one.
func backendOf(k agentwire.Key) string {
	if k.Place == nil {
		return k.Backend
	}
	return fmt.Sprintf("%s %d/%s", k.Backend, k.Place.Card, k.Place.Slot)
}

// placeRows describes the place of a key on a card, and its PIN and touch policies.
func placeRows(k agentwire.Key) [][]string {
	p := k.Place
	if p == nil {
		return nil
	}
	proof := "the card has proved that it made the key"
	if !p.Attested {
		proof = "NOT ATTESTED: the card has not proved that it made the key"
	}
	return [][]string{
		{"place", fmt.Sprintf("card %d, slot %s", p.Card, p.Slot)},
		{"PIN policy", p.PINPolicy}, {"touch policy", p.TouchPolicy}, {"attestation", proof},
	}
}

// confirmOf describes when a user has to confirm.
func confirmOf(c agentwire.Confirm) string {
	switch c.When {
	case "process":
		return fmt.Sprintf("a user confirms once for each process and %s", plural(c.Minutes, "minute", "minutes"))
	case "once":
		return "a user confirms once, until the key is locked or the agent ends"
	}
	return "a user confirms each use"
}

// notesOf lists the warnings about a key, the worst first.
func notesOf(k agentwire.Key, software map[string]bool) []string {
	var notes []string
	add := func(is bool, note string) {
		if is {
			notes = append(notes, note)
		}
	}
	add(k.Fault != "", "not usable: "+k.Fault)
	add(software[k.Backend], softwareTPM)
	add(k.Imported, "imported")
	add(k.Place != nil && !k.Place.Attested && !k.Imported, "not attested")
	add(k.PIN && k.UnlockedUntil == nil, "PIN wanted")
	if k.PIN && k.UnlockedUntil != nil {
		add(true, "unlocked until "+when(*k.UnlockedUntil))
	}
	if k.Place != nil {
		add(k.Place.TouchPolicy != "never", "touch "+k.Place.TouchPolicy)
	}
	if k.Confirm != nil {
		add(true, "confirm "+k.Confirm.When)
	}
	add(k.Persistent, "persistent")
	add(k.TLS12, "TLS 1.2 too")
	add(len(k.Servers) > 0, "bound to servers")
	return notes
}
