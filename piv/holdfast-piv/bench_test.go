package main

import (
	"crypto"
	"crypto/rand"
	"testing"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/internal/keys"
	"holdfast/test/pivcard"
)

// BenchmarkSign compares a signature through the child with one by piv-go in this
// process, on the same card.
func BenchmarkSign(b *testing.B) {
	d := setUp(b, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyNever, keys.PolicyNever)
	b.Run("child", func(b *testing.B) {
		for b.Loop() {
			d.must(k.signing())
		}
	})
	d.end()
	b.Setenv("PCSCLITE_CSOCK_NAME", d.rig.Socket())
	yk, err := piv.Open(d.rig.ReaderOf(d.card))
	if err != nil {
		b.Fatal(err)
	}
	defer yk.Close()
	public, err := keys.ParsePublic(k.public)
	if err != nil {
		b.Fatal(err)
	}
	private, err := yk.PrivateKey(piv.SlotAuthentication, public, piv.KeyAuth{PINPolicy: piv.PINPolicyNever})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("piv-go", func(b *testing.B) {
		for b.Loop() {
			if _, err := private.(crypto.Signer).Sign(rand.Reader, k.signing().Digest, crypto.SHA256); err != nil {
				b.Fatal(err)
			}
		}
	})
}
