package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
)

// adoptOptions holds the options of `key adopt`.
type adoptOptions struct {
	agentwire.AdoptKeyParameters
	slot, confirm string
	card          uint32
	source        secretSource
}

func (a *app) keyAdopt() *cobra.Command {
	var o adoptOptions
	cmd := &cobra.Command{
		Use: "adopt NAME FILE|--slot SLOT --purpose PURPOSE", Short: "take a key that another program made with this device",
		Long: `Takes a key from a file: a TSS2 PRIVATE KEY (PEM), as tpm2-openssl, ssh-tpm-agent
and holdfast key export write it, or the file that holdfast key export writes for a
key on a card. FILE may be - for stdin. With --slot it takes the key in that slot of
a card. A key on a card needs the card's PIN: anyone who knows the PIN may adopt it.

A key is rejected unless --allow-imported is given when it was not made inside the
device, when it can do more than sign, or when a card cannot prove that it made the
key. It is then always shown as imported.`,
		Example: indent("holdfast key adopt alice alice.tss2.pem --purpose tls-client\nholdfast key adopt alice --slot 9a --purpose tls-client"),
		Args: func(cmd *cobra.Command, args []string) error {
			if o.slot != "" {
				return oneKey()(cmd, args)
			}
			return oneKey("FILE")(cmd, args)
		},
		ValidArgsFunction: a.completeKeys,
		PreRunE:           func(*cobra.Command, []string) error { return o.check() },
		RunE:              a.asking(func(ctx context.Context, c *client.Client, args []string) error { return a.adopt(ctx, c, &o, args) }),
	}
	f := cmd.Flags()
	f.StringVar(&o.Purpose, "purpose", "", "the `PURPOSE`, what the key may sign: "+words(purposes()))
	complete(cmd, "purpose", purposes())
	f.StringVar(&o.Backend, "backend", "", "the `BACKEND` that the file is for (default the agent's first)")
	complete(cmd, "backend", []string{"tpm", pivBackend})
	f.BoolVar(&o.AllowImported, "allow-imported", false, "also a key that existed outside the device, or that can do more than sign")
	f.BoolVar(&o.Persistent, "persistent", false, "keep the key at a persistent handle of the TPM: one command per signature; handles are few")
	f.BoolVar(&o.TLS12, "tls12", false, "let the key sign TLS 1.2 too")
	slotFlag(cmd, &o.slot, "the `SLOT` of a card that holds the key, instead of a file")
	a.cardFlag(cmd, &o.card)
	o.source.flag(cmd, "pin-fd", "PIN")
	confirmFlag(cmd, &o.confirm)
	a.jsonFlag(cmd)
	return cmd
}

// check finds mistakes that need no agent.
func (o *adoptOptions) check() (err error) {
	if err := checkPurpose(o.Purpose); err != nil {
		return err
	}
	if o.slot != "" {
		if err := checkSlot(o.slot); err != nil {
			return err
		}
		if o.Backend == "" {
			o.Backend = pivBackend
		}
	}
	switch {
	case o.slot == "" && o.card != 0:
		return usagef("add --slot; holdfast piv list shows them", "--card goes with --slot")
	case o.slot != "" && (o.Backend != pivBackend || o.Persistent):
		return usagef("", "--slot is for keys on a card, and they need neither --persistent nor another backend")
	}
	o.Confirm, err = parseConfirm(o.confirm)
	return err
}

func (a *app) adopt(ctx context.Context, c *client.Client, o *adoptOptions, args []string) (err error) {
	o.Name = args[0]
	var card agentwire.Card
	if o.slot == "" {
		o.File, err = a.readKeyFile(args[1])
	} else if card, err = a.card(ctx, c, o.card); err == nil {
		o.File, err = slotReference(card, o.slot)
	}
	if err != nil {
		return err
	}
	defer func() { clear(o.PIN) }()
	if serial := referenceCard(o.File); serial != 0 {
		o.Backend = pivBackend
		if err := a.adoptPIN(ctx, c, o, serial); err != nil {
			return err
		}
		defer a.expectTouch(ctx, c, o.Name, &agentwire.OnCard{Card: serial})() // the key may sign once
	} else if o.source.given() {
		return usagef("", "--pin-fd is for keys on a card")
	}
	k, err := c.AdoptKey(ctx, o.AdoptKeyParameters)
	if err != nil {
		return wrongSecret(err, "PIN")
	}
	a.tellYes(k)
	return a.showKey(ctx, c, k)
}

// adoptPIN reads the PIN of the card that a key is on.
func (a *app) adoptPIN(ctx context.Context, c *client.Client, o *adoptOptions, serial uint32) error {
	card, err := a.card(ctx, c, serial)
	if err == nil {
		o.PIN, err = a.present(ctx, &o.source, card, "PIN", card.PINTries)
	}
	return err
}

// cardReference is the type of a PEM block that names a key on a card.
const cardReference = "HOLDFAST PIV KEY"

// referenceCard returns the serial number in a file that names a key on a card, and 0
// for any other file.
func referenceCard(file string) uint32 {
	block, _ := pem.Decode([]byte(file))
	if block == nil || block.Type != cardReference {
		return 0
	}
	serial, _ := strconv.ParseUint(block.Headers["Card"], 10, 32) // the agent says what is wrong with it
	return uint32(serial)
}

// slotReference returns the file that `key export` would write for the key in a slot.
func slotReference(card agentwire.Card, slot string) (string, error) {
	i := slices.IndexFunc(card.Slots, func(s agentwire.CardSlot) bool { return s.Slot == slot })
	if i < 0 {
		return "", failf("holdfast piv list shows what is in the slots; holdfast key create makes a key", "slot %s of card %d is empty", slot, card.Serial)
	}
	public := card.Slots[i].PublicKey
	if leaf, err := x509.ParseCertificate(card.Slots[i].Certificate); err == nil && len(public) == 0 {
		public = leaf.RawSubjectPublicKeyInfo
	}
	if len(public) == 0 {
		return "", failf("put its certificate into the slot, with the program that made the key; or make another with holdfast key create",
			"card %d does not tell which key is in slot %s", card.Serial, slot)
	}
	return string(pem.EncodeToMemory(&pem.Block{
		Type: cardReference, Headers: map[string]string{"Card": fmt.Sprint(card.Serial), "Slot": slot}, Bytes: public,
	})), nil
}

// readKeyFile reads a key file and keeps whole private keys on this side of the
// socket: such keys are already exposed.
func (a *app) readKeyFile(name string) (string, error) {
	data, err := a.read(name)
	if err != nil {
		return "", err
	}
	text := string(data)
	for _, kind := range []string{"RSA ", "EC ", "ENCRYPTED ", "OPENSSH ", ""} {
		if strings.Contains(text, "-----BEGIN "+kind+"PRIVATE KEY-----") {
			return "", failf("make a new key with holdfast key create, and a certificate for it; the old one is already exposed",
				"%s holds a private key that is not in a TPM", inputName(name))
		}
	}
	if !strings.Contains(text, "-----BEGIN ") {
		return "", failf("holdfast key export, tpm2-openssl and ssh-tpm-agent write such files", "%s holds no TSS2 PRIVATE KEY in PEM", inputName(name))
	}
	return text, nil
}
