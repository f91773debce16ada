package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/agent/keys"
	"holdfast/agent/wire"
	"holdfast/client"
)

// createOptions is what `key create` was given.
type createOptions struct {
	wire.CreateKeyParameters
	pin    bool
	source pinSource
	slot   string
	json   bool
}

func (a *app) keyCreate() *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use: "create NAME --purpose PURPOSE", Short: "make a key inside the device",
		Long: `Makes a key inside the device, for one purpose that can never be changed. The
private key never leaves the device. An RSA key can take a minute.`,
		Example: indent("holdfast key create alice --purpose tls-client"),
		Args:    oneKey(),
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			o.Name = args[0]
			return a.create(ctx, c, &o)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.Purpose, "purpose", "", "the `PURPOSE`, what the key may sign: "+purposes())
	f.StringVar(&o.Backend, "backend", "", "the `BACKEND`, tpm or piv (default the agent's first device)")
	f.StringVar(&o.Algorithm, "algorithm", "", "the `ALGORITHM`: "+words(keys.Algorithms())+" (default ES256)")
	complete(cmd, "purpose", keys.Purposes())
	complete(cmd, "algorithm", keys.Algorithms())
	f.IntVar(&o.RSABits, "rsa-bits", 0, "how many `BITS`: 2048, 3072 or 4096, as the device has them (default 2048)")
	f.BoolVar(&o.Persistent, "persistent", false, "keep the key at a persistent handle of the TPM: one command per signature; handles are few")
	f.BoolVar(&o.TLS12, "tls12", false, "let the key sign TLS 1.2 too, where the agent sees less of what it signs")
	f.BoolVar(&o.pin, "pin", false, "ask for a PIN that the key will want before it signs")
	f.StringVar(&o.slot, "slot", "", "the slot of a security key")
	if err := f.MarkHidden("slot"); err != nil {
		panic(err) // it was defined above
	}
	o.source.flag(cmd)
	jsonFlag(cmd, &o.json)
	return cmd
}

// purposes lists the purposes for help texts, and which of them are to come.
func purposes() string {
	var now, planned []keys.Purpose
	for _, p := range keys.Purposes() {
		if p.TLS() { // the agent refuses the others
			now = append(now, p)
		} else {
			planned = append(planned, p)
		}
	}
	return words(now) + "; planned: " + words(planned)
}

// check finds mistakes that need no agent.
func (o *createOptions) check() error {
	if err := checkPurpose(o.Purpose); err != nil {
		return err
	}
	if o.Algorithm != "" {
		if _, err := keys.ParseAlgorithm(o.Algorithm); err != nil {
			return usageError(err)
		}
	}
	switch {
	case o.RSABits != 0 && o.Algorithm != string(keys.RS256):
		return usagef("add --algorithm RS256", "--rsa-bits is for RSA keys")
	case o.Persistent && o.Backend == "piv":
		return usagef("", "--persistent is for keys in a TPM; a security key always keeps its keys")
	}
	return nil
}

func checkPurpose(purpose string) error {
	if purpose == "" {
		return usagef("one of "+words(keys.Purposes()), "--purpose is missing")
	}
	if _, err := keys.ParsePurpose(purpose); err != nil {
		return usageError(err)
	}
	return nil
}

func (a *app) create(ctx context.Context, c *client.Client, o *createOptions) error {
	if o.slot != "" {
		return &keys.Error{Kind: keys.Unsupported, Message: "this agent has no security keys, and only they have slots", Hint: "leave --slot out"}
	}
	if o.pin || o.source.given() {
		pin, err := o.source.read(ctx, a, "New PIN for key "+o.Name+": ", "The same again: ")
		if err == nil {
			err = keys.CheckPIN(pin)
		}
		if err != nil {
			return err
		}
		o.PIN = pin
	}
	stop := func() {}
	if o.Algorithm == string(keys.RS256) {
		stop = a.alive("making an RSA key inside the device")
	}
	slow, cancel := context.WithTimeout(ctx, createTime)
	defer cancel()
	k, err := c.CreateKey(slow, o.CreateKeyParameters)
	stop()
	clear(o.PIN)
	if err != nil {
		return err
	}
	return a.showKey(ctx, c, k, o.json)
}

func (a *app) keyAdopt() *cobra.Command {
	var p wire.AdoptKeyParameters
	var asJSON bool
	cmd := &cobra.Command{
		Use: "adopt NAME FILE --purpose PURPOSE", Short: "take a key from a file that another program made with this device",
		Long: `Takes a TSS2 PRIVATE KEY (PEM), as tpm2-openssl, ssh-tpm-agent and holdfast key
export write it. FILE may be - for stdin. A key that was not made inside the TPM,
or that can do more than sign, is refused unless --allow-imported is given, and
is shown as imported ever after.`,
		Example: indent("holdfast key adopt alice alice.tss2.pem --purpose tls-client"),
		Args:    oneKey("FILE"), ValidArgsFunction: a.completeKeys,
		PreRunE: func(*cobra.Command, []string) error { return checkPurpose(p.Purpose) },
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			file, err := a.readKeyFile(args[1])
			if err != nil {
				return err
			}
			p.Name, p.File = args[0], file
			k, err := c.AdoptKey(ctx, p)
			if err != nil {
				return err
			}
			return a.showKey(ctx, c, k, asJSON)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&p.Purpose, "purpose", "", "the `PURPOSE`, what the key may sign: "+purposes())
	complete(cmd, "purpose", keys.Purposes())
	f.StringVar(&p.Backend, "backend", "", "the `BACKEND` that the file is for (default the agent's first)")
	f.BoolVar(&p.AllowImported, "allow-imported", false, "also a key that existed outside the device, or that can do more than sign")
	f.BoolVar(&p.Persistent, "persistent", false, "keep the key at a persistent handle of the TPM: one command per signature; handles are few")
	f.BoolVar(&p.TLS12, "tls12", false, "let the key sign TLS 1.2 too")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// readKeyFile reads a key file and keeps whole private keys on this side of the
// socket: they are what holdfast is there to avoid.
func (a *app) readKeyFile(name string) (string, error) {
	data, err := a.read(name)
	if err != nil {
		return "", err
	}
	text := string(data)
	for _, kind := range []string{"RSA ", "EC ", "ENCRYPTED ", "OPENSSH ", ""} {
		if strings.Contains(text, "-----BEGIN "+kind+"PRIVATE KEY-----") {
			return "", &problem{
				inputName(name) + " holds a private key that is not in a TPM",
				"make a new key with holdfast key create, and a certificate for it; the old one is already exposed",
				exitFailed, errors.ErrUnsupported,
			}
		}
	}
	if !strings.Contains(text, "-----BEGIN ") {
		return "", &problem{inputName(name) + " holds no TSS2 PRIVATE KEY in PEM", "holdfast key export, tpm2-openssl and ssh-tpm-agent write such files", exitFailed, nil}
	}
	return text, nil
}
