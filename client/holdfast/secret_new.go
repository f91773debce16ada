package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"math/big"

	"holdfast/internal/keys"
)

// readNew reads a new PIN or PUK of a card, twice from a terminal.
func (s *secretSource) readNew(ctx context.Context, a *app) ([]byte, error) {
	secret, err := s.read(ctx, a, fmt.Sprintf("The %s (6 to 8 digits, letters or signs): ", s.name), "The same again: ")
	if err != nil {
		return nil, err
	}
	return secret, checkNew(s.name, secret)
}

// checkNew returns an error unless secret can be a card's PIN or PUK and is not one
// that a finder tries first: the factory's, or one that repeats one character or
// counts up or down.
func checkNew(name string, secret []byte) error {
	if err := checkCode(name, secret); err != nil {
		return err
	}
	for step := -1; step <= 1; step++ {
		if steady(secret, step) {
			return failf("these are the first that a finder of the card tries: choose another",
				"the %s repeats one character, or counts up or down, as the factory's does", name)
		}
	}
	return nil
}

// checkCode returns an error that names the PIN or PUK unless secret can be one.
func checkCode(name string, secret []byte) error {
	if keys.CheckCardPIN(secret) == nil {
		return nil
	}
	why := "has a blank, or a sign that is not ASCII"
	switch {
	case len(secret) < 6:
		why = "is too short"
	case len(secret) > 8:
		why = "is too long"
	}
	return failf("use 6 to 8 digits, letters or signs; nothing was done", "the %s %s", name, why)
}

// steady reports whether each byte of s is the one before it plus step.
func steady(s []byte, step int) bool {
	for i := 1; i < len(s); i++ {
		if int(s[i])-int(s[i-1]) != step {
			return false
		}
	}
	return true
}

func checkDifferent(pin, puk []byte) error {
	if bytes.Equal(pin, puk) {
		return failf("the PUK replaces a lost PIN: choose two different codes", "PIN and PUK are the same")
	}
	return nil
}

// newPUK returns the new PUK of a card: a random one that is shown once, or the one
// that the user enters.
func (a *app) newPUK(ctx context.Context, source *secretSource, generate bool, serial uint32) ([]byte, error) {
	if !generate {
		return source.readNew(ctx, a)
	}
	puk := randomPUK()
	// It is shown before the card gets it: after a crash it would otherwise be lost.
	_, err := fmt.Fprintf(a.stdout, "PUK of card %d: %s\n", serial, puk)
	a.note("keep the PUK where the card is not: it is shown this once, and sets a new PIN when that is blocked")
	return puk, err
}

// randomPUK returns eight digits that checkNew takes.
func randomPUK() []byte {
	for {
		n, err := rand.Int(rand.Reader, big.NewInt(1e8))
		if err != nil {
			panic(err) // crypto/rand never fails
		}
		if puk := fmt.Appendf(nil, "%08d", n); checkNew("PUK", puk) == nil {
			return puk
		}
	}
}
