package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// createOptions holds the options of `key create`.
type createOptions struct {
	agentwire.CreateKeyParameters
	pin     bool
	source  secretSource
	card    cardOptions
	confirm string
}

func (a *app) keyCreate() *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use: "create NAME --purpose PURPOSE", Short: "make a key inside the device",
		Long: `Makes a key inside the device, for one purpose that can never be changed. The
private key never leaves the device. An RSA key can take a minute.

On a security key (--backend piv) the command asks for the card's PIN, which all
keys on the card share; the card proves that it made the key.`,
		Example: indent("holdfast key create alice --purpose tls-client\nholdfast key create bob --purpose tls-client --backend piv --touch-policy always"),
		Args:    oneKey(),
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			o.Name = args[0]
			k, err := a.newKey(ctx, c, &o)
			if err != nil {
				return err
			}
			a.tellYes(k)
			return a.showKey(ctx, c, k)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.Purpose, "purpose", "", "the `PURPOSE`, what the key may sign: "+words(purposes()))
	f.StringVar(&o.Backend, "backend", "", "the `BACKEND`, tpm or piv (default the agent's first device)")
	f.StringVar(&o.Algorithm, "algorithm", "", "the `ALGORITHM`: "+words(keys.Algorithms())+" (default ES256)")
	complete(cmd, "purpose", purposes())
	complete(cmd, "algorithm", keys.Algorithms())
	complete(cmd, "backend", []string{"tpm", pivBackend})
	f.IntVar(&o.RSABits, "rsa-bits", 0, "how many `BITS`: 2048, 3072 or 4096, as the device has them (default 2048)")
	f.BoolVar(&o.Persistent, "persistent", false, "keep the key at a persistent handle of the TPM: one command per signature; handles are few")
	f.BoolVar(&o.TLS12, "tls12", false, "let the key sign TLS 1.2 too, where the agent sees less of what it signs")
	f.BoolVar(&o.pin, "pin", false, "ask for a PIN that the key in a TPM will want before it signs")
	o.source.flag(cmd, "pin-fd", "PIN")
	o.card.flags(a, cmd)
	confirmFlag(cmd, &o.confirm)
	a.jsonFlag(cmd)
	return cmd
}

// purposes lists the purposes of the keys that can be made. The agent rejects the others.
func purposes() []keys.Purpose {
	return slices.DeleteFunc(keys.Purposes(), func(p keys.Purpose) bool { return !p.TLS() })
}

// check finds mistakes that need no agent.
func (o *createOptions) check() (err error) {
	if err := checkPurpose(o.Purpose); err != nil {
		return err
	}
	if o.Algorithm != "" {
		if _, err := keys.ParseAlgorithm(o.Algorithm); err != nil {
			return unknownWord(o.Algorithm, texts(keys.Algorithms()), err)
		}
	}
	if err := o.card.check(); err != nil {
		return err
	}
	if o.card.given() && o.Backend == "" {
		o.Backend = pivBackend
	}
	switch {
	case o.card.given() && o.Backend != pivBackend:
		return usagef("leave --backend out, or name piv", "cards, slots and their policies are for --backend piv")
	case o.pin && o.Backend == pivBackend:
		return errCardPIN
	case o.RSABits != 0 && o.Algorithm != string(keys.RS256):
		return usagef("add --algorithm RS256", "--rsa-bits is for RSA keys")
	case o.Persistent && o.Backend == pivBackend:
		return usagef("", "--persistent is for keys in a TPM; a security key always keeps its keys")
	}
	o.Confirm, err = parseConfirm(o.confirm)
	return err
}

// errCardPIN rejects --pin for a key on a card.
var errCardPIN = usagef("--pin-policy says when the card wants its PIN", "--pin is for keys in a TPM; a card has one PIN for all its keys")

func checkPurpose(purpose string) error {
	if purpose == "" {
		return usagef("one of "+words(purposes()), "--purpose is missing")
	}
	if !slices.Contains(purposes(), keys.Purpose(purpose)) {
		return usagef(didYouMean(purpose, texts(purposes()), "one of "+words(purposes())), "purpose %q is not known", purpose)
	}
	return nil
}

// newKey makes a key, and asks for the PIN that its device needs for that.
func (a *app) newKey(ctx context.Context, c *client.Client, o *createOptions) (agentwire.Key, error) {
	backend := o.Backend
	if backend == "" {
		backend = firstBackend(ctx, c)
	}
	defer func() { clear(o.PIN) }()
	if backend == pivBackend && o.pin {
		return agentwire.Key{}, errCardPIN
	}
	if backend == pivBackend {
		return a.createOnCard(ctx, c, o)
	}
	return a.createInTPM(ctx, c, o)
}

// firstBackend returns the agent's default backend. It is empty when the status does
// not say; the request for the key is sent anyway.
func firstBackend(ctx context.Context, c *client.Client) string {
	status, err := c.Status(ctx)
	if err != nil || len(status.Devices) == 0 {
		return ""
	}
	return status.Devices[0].Backend
}

func (a *app) createInTPM(ctx context.Context, c *client.Client, o *createOptions) (agentwire.Key, error) {
	if o.pin || o.source.given() {
		pin, err := o.source.read(ctx, a, "New PIN for key "+o.Name+": ", "The same again: ")
		if err == nil {
			err = keys.CheckPIN(pin)
		}
		if err != nil {
			return agentwire.Key{}, err
		}
		o.PIN = pin
	}
	return a.makeKey(ctx, c, o.CreateKeyParameters)
}

// makeKey has the agent make a key, and shows progress where that can take long.
func (a *app) makeKey(ctx context.Context, c *client.Client, p agentwire.CreateKeyParameters) (agentwire.Key, error) {
	stop := func() {}
	if p.Algorithm == string(keys.RS256) {
		stop = a.progress("making an RSA key inside the device")
	}
	defer func() { stop() }()
	slow, cancel := context.WithTimeout(ctx, createTime)
	defer cancel()
	return c.CreateKey(slow, p)
}
