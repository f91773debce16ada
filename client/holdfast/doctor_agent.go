package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"holdfast/client"
	"holdfast/client/enroll"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// expirySoon is how long before its end a certificate is worth a note.
const expirySoon = 14 * 24 * time.Hour

// expiryNow is how long before its end a certificate that no renewal is planned for is a
// problem.
const expiryNow = 24 * time.Hour

// overdue is the time after which a planned renewal counts as late: the timer runs
// every ten minutes.
const overdue = 20 * time.Minute

func (f *findings) devices(list []agentwire.Device) {
	if len(list) == 0 {
		f.bad("device", "the agent has no device, so it can make no key", "start it with --device tpm:/dev/tpmrm0, or with --piv on for cards")
	}
	for _, d := range list {
		if d.Backend != pivBackend { // cards come and go
			f.device(d)
		}
	}
}

func (f *findings) device(d agentwire.Device) {
	switch state := keys.State(d.State); {
	case state == keys.StateReady:
		f.ok("device", "%s is ready", d.Device)
	case d.Hint != "":
		f.bad("device", fmt.Sprintf("%s is %s: %s", d.Device, d.State, d.Reason), d.Hint)
	default:
		f.bad("device", fmt.Sprintf("%s is %s: %s", d.Device, d.State, d.Reason), nextStep(state))
	}
	if d.Software {
		f.note("device", d.Device+" is a "+softwareTPM+": no hardware protects its keys", "use it for tests only")
	}
}

// nextStep returns a hint for a state that the agent gives none for.
func nextStep(state keys.State) string {
	switch state {
	case keys.StateAbsent:
		return "plug it in or switch it on in the firmware's setup; the agent looks again by itself"
	case keys.StateBusy:
		return "another program fills the device: end it, or wait"
	case keys.StateLocked:
		return "too many wrong PINs: wait, keys without a PIN go on working"
	case keys.StateIdentityChanged:
		return "this is not the device that the keys were made on: put the old one back; only if it is gone for good, make new keys and enrol them"
	}
	return "restart the machine if it lasts"
}

// keys reports keys that cannot be used, or not for much longer.
func (f *findings) keys(ctx context.Context, c *client.Client) {
	list, err := c.Keys(ctx, false)
	if err != nil {
		f.failed("keys", err)
		return
	}
	before := len(*f)
	for _, k := range list {
		f.key(k)
		if !superseded(k, list) {
			f.certificate(k)
		}
	}
	if len(*f) == before {
		f.ok("keys", "%s, nothing wrong with any", plural(len(list), "key", "keys"))
	}
}

func (f *findings) key(k agentwire.Key) {
	if k.Fault != "" {
		f.bad("key "+k.Name, k.Fault, "holdfast key show "+k.Name)
	}
	if k.Imported {
		f.note("key "+k.Name, "imported: it was not made inside the device, so a copy may exist", "make a new key with holdfast key create")
	}
}

// certificate checks that a key's certificate is valid and will be renewed in time.
func (f *findings) certificate(k agentwire.Key) {
	if len(k.Chain) == 0 {
		return
	}
	subject := "key " + k.Name
	again := fmt.Sprintf("holdfast certificate request %s --subject … and install what the CA returns", k.Name)
	leaf, err := x509.ParseCertificate(k.Chain[0])
	if err != nil {
		f.bad(subject, "its certificate is damaged", again)
		return
	}
	due, renewed := enroll.Planned(k.Name, leaf)
	if renewed != "" {
		again = fmt.Sprintf("holdfast enroll kubernetes %s --key %s gets another", renewed, keys.SetOf(k.Name))
	}
	switch {
	case time.Now().Before(leaf.NotBefore):
		f.bad(subject, "its certificate is not valid before "+when(leaf.NotBefore), "check this machine's clock; else wait, or "+again)
	case time.Now().After(leaf.NotAfter):
		f.bad(subject, "its certificate expired on "+when(leaf.NotAfter), again)
	case renewed != "" && time.Since(due) > overdue:
		f.note(subject, fmt.Sprintf("the renewal of its certificate was due on %s; it expires on %s", when(due), when(leaf.NotAfter)),
			"holdfast renew --due says why not; holdfast-renew.timer runs it")
	case renewed == "" && time.Until(leaf.NotAfter) < expiryNow:
		f.bad(subject, "its certificate expires within a day, on "+when(leaf.NotAfter), again)
	case renewed == "" && time.Until(leaf.NotAfter) < expirySoon:
		f.note(subject, "its certificate expires on "+when(leaf.NotAfter), again)
	}
}

// superseded reports whether a newer generation of a key signs in instead of it.
func superseded(k agentwire.Key, all []agentwire.Key) bool {
	return slices.ContainsFunc(all, func(other agentwire.Key) bool {
		if keys.SetOf(other.Name) != keys.SetOf(k.Name) || other.Owner.UID != k.Owner.UID ||
			client.Generation(other.Name) <= client.Generation(k.Name) || len(other.Chain) == 0 || other.Fault != "" {
			return false
		}
		leaf, err := x509.ParseCertificate(other.Chain[0])
		return err == nil && time.Now().Before(leaf.NotAfter)
	})
}
