package minted

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
)

// admit returns nil when the profile has the mode, and the client's cluster is the
// profile's. A kubeconfig names a profile and a server: an attacker's kubeconfig may
// name a good profile and the attacker's server, which would be sent the credential.
func admit(r Request) error {
	if r.Mode != brokerwire.ModeCertificate && r.Mode != brokerwire.ModeToken {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("mode %.20q mints nothing", r.Mode), Hint: "certificate and token do"}
	}
	if !slices.Contains(r.Profile.Modes, r.Mode) {
		return &fault.Error{
			Kind:    fault.Denied,
			Message: fmt.Sprintf("profile %s may not be asked for mode %s", r.Profile.Name, r.Mode),
			Hint:    "modes in the profile's file lists what it may; proxy needs no minted credential",
		}
	}
	return compare(r.Cluster, r.Profile)
}

// compare returns a denied error for the first thing in which a client's cluster
// is not the profile's.
func compare(c *brokerwire.Cluster, p *profile.Profile) error {
	refuse := func(hint, format string, args ...any) error {
		return &fault.Error{Kind: fault.Denied, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	again := "holdfast kubeconfig add writes an entry that fits; use no kubeconfig that you do not trust"
	switch {
	case c == nil:
		return refuse("provideClusterInfo: true in the kubeconfig's exec entry; holdfast kubeconfig add writes it",
			"this mode needs to know which cluster the credential is for")
	case c.InsecureSkipTLSVerify:
		return refuse("give the cluster's certificate-authority-data instead",
			"the kubeconfig says insecure-skip-tls-verify: an attacker could get the credential")
	case !sameServer(c.Server, p.Cluster.Server):
		return refuse(again, "the kubeconfig's server %.100q is not that of profile %s", c.Server, p.Name)
	case !strings.EqualFold(c.TLSServerName, p.Cluster.TLSServerName):
		return refuse(again, "the kubeconfig's tls-server-name %.100q is not that of profile %s", c.TLSServerName, p.Name)
	case !sameCertificates(c.CertificateAuthorityData, []byte(p.Cluster.CertificateAuthorityData)):
		return refuse(again, "the kubeconfig's certificate-authority-data is not that of profile %s", p.Name)
	case c.ProxyURL != "" && c.ProxyURL != p.Cluster.ProxyURL:
		return refuse(again, "the kubeconfig's proxy-url is not that of profile %s", p.Name) // which may hold a password
	}
	return nil
}

// sameServer reports whether two URLs name one server: the case of scheme and
// host, the scheme's own port and a slash at the end make no difference (RFC 3986,
// section 6.2).
func sameServer(a, b string) bool {
	one, ok := server(a)
	other, too := server(b)
	return ok && too && one == other
}

func server(text string) (string, bool) {
	u, err := url.Parse(text)
	if err != nil || !strings.EqualFold(u.Scheme, "https") || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "" {
		return "", false
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port) + strings.TrimSuffix(u.EscapedPath(), "/"), true
}

// sameCertificates reports whether two texts, PEM, hold the same certificates, in
// whatever order and however often. Text that holds anything else, or nothing, is
// the same as nothing.
func sameCertificates(a, b []byte) bool {
	one, ok := fingerprints(a)
	other, too := fingerprints(b)
	return ok && too && maps.Equal(one, other)
}

func fingerprints(text []byte) (map[[sha256.Size]byte]bool, bool) {
	found := map[[sha256.Size]byte]bool{}
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return found, len(found) > 0 && !bytes.Contains(text, []byte("-----BEGIN"))
		}
		if block.Type != "CERTIFICATE" {
			return nil, false
		}
		found[sha256.Sum256(block.Bytes)] = true
		text = rest
	}
}
