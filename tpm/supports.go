package tpm

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// candidates lists every kind of key that a device might make.
func candidates() []keys.Capability {
	return []keys.Capability{
		{Algorithm: keys.ES256}, {Algorithm: keys.ES384},
		{Algorithm: keys.RS256, RSABits: 2048}, {Algorithm: keys.RS256, RSABits: 3072}, {Algorithm: keys.RS256, RSABits: 4096},
	}
}

// supports rejects a key that the device cannot make, with the list of those that it
// can.
func (t *TPM) supports(ctx context.Context, area tpm2.TPMTPublic) error {
	l, err := t.sharedLink(ctx)
	if err != nil {
		return err
	}
	ok, err := testParms(ctx, l, area)
	if err != nil || ok {
		return err
	}
	list, err := t.capabilities(ctx)
	if err != nil {
		return err
	}
	return &fault.Error{Kind: fault.Unsupported, Message: "this TPM does not make such keys", Hint: "it makes " + describe(list)}
}

// testParms asks whether the device knows an algorithm with its parameters.
func testParms(ctx context.Context, l *link, area tpm2.TPMTPublic) (bool, error) {
	_, err := tpm2.TestParms{Parameters: tpm2.TPMTPublicParms{Type: area.Type, Parameters: area.Parameters}}.Execute(l.on(ctx))
	if aboutParameter(err) {
		return false, nil
	}
	return err == nil, step("TPM2_TestParms", l, err)
}

// capabilities asks once for the kinds of key that the device makes.
func (t *TPM) capabilities(ctx context.Context) ([]keys.Capability, error) {
	if t.can != nil {
		return t.can, nil
	}
	l, err := t.sharedLink(ctx)
	if err != nil {
		return nil, err
	}
	list := []keys.Capability{}
	for _, c := range candidates() {
		area, err := template(keys.Template{Purpose: keys.TLSClient, Algorithm: c.Algorithm, RSABits: c.RSABits})
		if err != nil {
			return nil, err
		}
		ok, err := testParms(ctx, l, area)
		if err != nil {
			return nil, err
		}
		if ok {
			list = append(list, c)
		}
	}
	t.set(func() { t.can = list })
	return list, nil
}

// describe lists capabilities for a hint.
func describe(list []keys.Capability) string {
	words := make([]string, len(list))
	for i, c := range list {
		words[i] = string(c.Algorithm)
		if c.RSABits != 0 {
			words[i] = fmt.Sprintf("%s with %d bits", c.Algorithm, c.RSABits)
		}
	}
	return strings.Join(words, ", ")
}
