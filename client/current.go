package client

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// Generations lists the keys of a set, the newest generation first: NAME.2,
// NAME.1, NAME. They are the caller's own, and where the caller has none of a
// name, the machine's of that name. Of each chain the leaf alone is there. A set
// with the number of a generation is that key alone. A set without keys is a
// denied [*fault.Error], as for a key that the caller may not use.
func (c *Client) Generations(ctx context.Context, set string) ([]agentwire.Key, error) {
	if err := keys.CheckName(set); err != nil {
		return nil, err
	}
	all, err := c.Keys(ctx, false)
	if err != nil {
		return nil, err
	}
	found := ownFirst(all, func(k agentwire.Key) bool { return k.Name == set || keys.SetOf(k.Name) == set })
	if len(found) == 0 {
		return nil, &fault.Error{
			Kind:    fault.Denied,
			Message: fmt.Sprintf("there is no key %q that you may use", set),
			Hint:    "holdfast key list shows yours; holdfast enroll kubernetes PROFILE --key " + set + " --create makes one",
		}
	}
	slices.SortFunc(found, func(a, b agentwire.Key) int { return Generation(b.Name) - Generation(a.Name) })
	return found, nil
}

// ownFirst returns the keys that want wants, and of two with one name that of
// this user, as the agent does when it is asked for the name.
func ownFirst(all []agentwire.Key, want func(agentwire.Key) bool) []agentwire.Key {
	byName := map[string]agentwire.Key{}
	for _, k := range all {
		if _, taken := byName[k.Name]; want(k) && (!taken || int(k.Owner.UID) == os.Getuid()) {
			byName[k.Name] = k
		}
	}
	found := make([]agentwire.Key, 0, len(byName))
	for _, k := range byName {
		found = append(found, k)
	}
	return found
}

// Generation returns the number of the generation in a key's name: 2 for NAME.2,
// and 0 for NAME.
func Generation(name string) int {
	_, number, _ := strings.Cut(name, ".")
	n, _ := strconv.Atoi(number) // the name's grammar: no number is 0
	return n
}

// Current returns the key of a set that signs in now: the newest generation that
// has a certificate valid now and no fault. This user's own keys come before the
// machine's. It asks the agent twice and costs the device nothing.
//
// When no generation qualifies the error is a not-found [*fault.Error] that says
// what is wrong with the newest one, and whose hint names the command.
func (c *Client) Current(ctx context.Context, set string) (*Key, error) {
	generations, err := c.Generations(ctx, set)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for _, own := range []bool{true, false} {
		for _, k := range generations {
			if own == (int(k.Owner.UID) == os.Getuid()) && unusable(k, now) == nil {
				return c.Key(ctx, k.Name)
			}
		}
	}
	return nil, whyNone(generations, now)
}

// whyNone says why no generation can sign in: what is wrong with the newest that
// ever could.
func whyNone(generations []agentwire.Key, now time.Time) error {
	for _, k := range generations {
		if len(k.Chain) > 0 {
			return unusable(k, now)
		}
	}
	return unusable(generations[0], now)
}

// unusable returns why a key cannot sign in now, or nil when it can.
func unusable(k agentwire.Key, now time.Time) error {
	refuse := func(hint, format string, args ...any) error {
		return &fault.Error{Kind: fault.NotFound, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	enroll := "holdfast enroll kubernetes PROFILE --key " + keys.SetOf(k.Name)
	if k.Fault != "" {
		return refuse("holdfast key show "+k.Name+" says more", "key %s cannot be used: %s", k.Name, k.Fault)
	}
	if len(k.Chain) == 0 {
		return refuse(enroll+" gets one", "key %s has no certificate", k.Name)
	}
	leaf, err := x509.ParseCertificate(k.Chain[0])
	switch {
	case err != nil:
		return refuse(enroll+" gets another", "the certificate of key %s cannot be read: %v", k.Name, err)
	case now.After(leaf.NotAfter):
		return refuse(enroll+" gets another; holdfast renew --due, run by its timer, renews in time",
			"the certificate of key %s expired on %s", k.Name, leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return refuse("is this machine's clock right? timedatectl shows it",
			"the certificate of key %s is valid from %s only", k.Name, leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// WithChain returns a copy of k with another certificate chain, DER, leaf first:
// to try one out before it is installed.
func (k *Key) WithChain(chain [][]byte) *Key {
	c := *k
	c.info.Chain = chain
	return &c
}
