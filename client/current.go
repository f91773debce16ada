package client

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// Generations lists the keys of a set, the newest generation first: NAME.2, NAME.1,
// NAME. A key of the caller hides the machine's key of the same name. Each chain
// holds only its leaf. When set names one generation, the list has that key alone.
// A set without keys is a denied [*Error], as for a key that the caller may not use.
func (c *Client) Generations(ctx context.Context, set string) ([]KeyInfo, error) {
	if err := keys.CheckName(set); err != nil {
		return nil, err
	}
	all, err := c.Keys(ctx, false)
	if err != nil {
		return nil, err
	}
	found := ownFirst(all, func(k KeyInfo) bool { return k.Name == set || keys.SetOf(k.Name) == set })
	if len(found) == 0 {
		return nil, &Error{
			Kind:    Denied,
			Message: fmt.Sprintf("there is no key %q that you may use", set),
			Hint:    "holdfast key list shows yours; holdfast enroll kubernetes PROFILE --key " + set + " --create makes one",
			Next:    fault.Next{Do: fault.EnrollNew, Key: set},
		}
	}
	slices.SortFunc(found, func(a, b KeyInfo) int { return Generation(b.Name) - Generation(a.Name) })
	return found, nil
}

// ownFirst returns the keys for which want is true. Of two keys with one name it
// returns this user's, as the agent does.
func ownFirst(all []KeyInfo, want func(KeyInfo) bool) []KeyInfo {
	byName := map[string]KeyInfo{}
	for _, k := range all {
		if _, taken := byName[k.Name]; want(k) && (!taken || int(k.Owner.UID) == os.Getuid()) {
			byName[k.Name] = k
		}
	}
	return slices.Collect(maps.Values(byName))
}

// Generation returns the number of the generation in a key's name: 2 for NAME.2,
// and 0 for NAME.
func Generation(name string) int {
	_, number, _ := strings.Cut(name, ".")
	n, _ := strconv.Atoi(number) // a name without a number is generation 0
	return n
}

// Current returns the key of a set to sign in with: the newest generation that has no
// fault and a certificate that is valid now. This user's keys come before the
// machine's. It makes two calls to the agent, and the device does nothing.
//
// When no generation qualifies, the error is a not-found [*Error] about the newest
// one that has a certificate.
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

// whyNone returns why no generation can sign in: the problem of the newest one that
// has a certificate.
func whyNone(generations []KeyInfo, now time.Time) error {
	for _, k := range generations {
		if len(k.Chain) > 0 {
			return unusable(k, now)
		}
	}
	return unusable(generations[0], now)
}

// unusable returns why a key cannot sign in now, or nil when it can.
func unusable(k KeyInfo, now time.Time) error {
	refuse := func(hint, format string, args ...any) *Error {
		return &Error{Kind: NotFound, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	next := fault.Next{Do: fault.Enroll, Key: keys.SetOf(k.Name)}
	enroll := func(gets, format string, args ...any) error {
		e := refuse(next.String()+gets, format, args...)
		e.Next = next
		return e
	}
	if k.Fault != "" {
		return refuse("holdfast key show "+k.Name+" says more", "key %s cannot be used: %s", k.Name, k.Fault)
	}
	if len(k.Chain) == 0 {
		return enroll(" gets one", "key %s has no certificate", k.Name)
	}
	leaf, err := x509.ParseCertificate(k.Chain[0])
	switch {
	case err != nil:
		return enroll(" gets another", "the certificate of key %s cannot be read: %v", k.Name, err)
	case now.After(leaf.NotAfter):
		return enroll(" gets another; holdfast renew --due, run by its timer, renews in time",
			"the certificate of key %s expired on %s", k.Name, leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return refuse("is this machine's clock right? timedatectl shows it",
			"the certificate of key %s is valid from %s only", k.Name, leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// WithChain returns a copy of k with another certificate chain, DER, leaf first. It
// serves to try a chain before it is installed.
func (k *Key) WithChain(chain [][]byte) *Key {
	c := *k
	c.info.Chain = chain
	return &c
}
