// Package keys is the vocabulary that the packages of holdfast share: a key's material,
// purpose, algorithm and signature scheme, and the interface of a device.
//
// Start at [Backend], the one interface between the agent and a device, and at
// [Purpose], which decides what a key can ever sign. Errors are [fault.Error]
// values, which cross the socket to the caller.
//
// The package holds no key and talks to no device. Package policy decides which
// callers may use a key.
package keys

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"holdfast/internal/fault"
)

// A Purpose is the one thing a key may sign. It is fixed when the key is made.
type Purpose string

// The purposes. Creating a key with a purpose that no method serves yet is an error.
const (
	TLSClient        Purpose = "tls-client"
	TLSServer        Purpose = "tls-server"
	ServiceAccount   Purpose = "service-account"
	ClientAssertion  Purpose = "client-assertion"
	AWSRolesAnywhere Purpose = "aws-roles-anywhere"
)

// Purposes lists every purpose, in the order in which help texts show them.
func Purposes() []Purpose {
	return []Purpose{TLSClient, TLSServer, ServiceAccount, ClientAssertion, AWSRolesAnywhere}
}

// ParsePurpose returns the purpose named s, or a bad-request [fault.Error].
func ParsePurpose(s string) (Purpose, error) {
	return parseWord("purpose", s, Purposes())
}

// TLS reports whether a key of this purpose signs TLS handshakes, and hence
// certificate requests.
func (p Purpose) TLS() bool { return p == TLSClient || p == TLSServer }

// An Algorithm is a key's type and the hash it signs with, by its JWA name
// (RFC 7518, section 3.1). RS256 keys sign RSASSA-PSS when their purpose is
// TLS and RSASSA-PKCS1-v1_5 otherwise; see [SchemeFor].
type Algorithm string

// The algorithms.
const (
	ES256 Algorithm = "ES256" // ECDSA on P-256 with SHA-256
	ES384 Algorithm = "ES384" // ECDSA on P-384 with SHA-384
	RS256 Algorithm = "RS256" // RSA with SHA-256; 2048, 3072 or 4096 bits
)

// Algorithms lists every algorithm, in the order in which help texts show them.
func Algorithms() []Algorithm { return []Algorithm{ES256, ES384, RS256} }

// ParseAlgorithm returns the algorithm named s, or a bad-request [fault.Error].
func ParseAlgorithm(s string) (Algorithm, error) {
	return parseWord("algorithm", s, Algorithms())
}

// MaxName is the longest key name, in bytes.
const MaxName = 64

var nameGrammar = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?(?:\.[1-9][0-9]{0,5})?$`)

// CheckName returns a bad-request [fault.Error] unless name is a key name: lower-case
// letters, digits, '-' and '_', starting and ending with a letter or digit,
// then optionally a dot and the number of a generation. Names are at most
// [MaxName] bytes and are safe as file names.
func CheckName(name string) error {
	if len(name) > MaxName || !nameGrammar.MatchString(name) {
		return &fault.Error{
			Kind:    fault.BadRequest,
			Message: fmt.Sprintf("%.80q is not a key name", name),
			Hint:    fmt.Sprintf("lower-case letters, digits, '-' and '_', at most %d, then .N for generation N", MaxName),
		}
	}
	return nil
}

// SetOf returns the set that a key belongs to: its name without the number of
// its generation. Policy names sets.
func SetOf(name string) string {
	set, _, _ := strings.Cut(name, ".")
	return set
}

func parseWord[S ~string](what, s string, known []S) (S, error) {
	if slices.Contains(known, S(s)) {
		return S(s), nil
	}
	words := make([]string, len(known))
	for i, word := range known {
		words[i] = string(word)
	}
	return "", &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("%s %q is not known", what, s), Hint: "one of " + strings.Join(words, ", ")}
}
