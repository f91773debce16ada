package profile

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/keys"
)

// MaxName is the longest name of a profile, in bytes: followed by [Domain], it
// is still a DNS name, and it fits into the names of kubeconfig entries.
const MaxName = 40

// The grammars of names, from RFC 1123 as Kubernetes reads it; never written to.
var (
	label     = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$`)
	subdomain = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*$`)
	signer    = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)+/[a-zA-Z0-9](?:[a-zA-Z0-9._:-]*[a-zA-Z0-9])?$`)
)

// The shortest and the longest lifetime that the API server accepts (CSR API and
// TokenRequest API, expirationSeconds).
const (
	MinLifetime = 10 * time.Minute
	MaxLifetime = (1<<31 - 1) * time.Second
)

// CheckName returns an error unless name can name a profile: a DNS label of at
// most [MaxName] bytes.
func CheckName(name string) error {
	if len(name) > MaxName || !label.MatchString(name) {
		return fmt.Errorf("%.80q is not a profile's name: lower-case letters, digits and '-', at most %d, no '-' at either end", name, MaxName)
	}
	return nil
}

// Check returns an error, with one line for each fault, unless the profile is valid.
func (p *Profile) Check() error {
	all := []error{CheckName(p.Name)}
	for _, f := range p.faults() {
		all = append(all, fmt.Errorf("%s: %w", f.word, f.err))
	}
	return errors.Join(all...)
}

// A fault is an error in the value of a word.
type fault struct {
	word string
	err  error
}

func (p *Profile) faults() []fault {
	var found []fault
	for _, f := range []fault{
		{"key", checkKey(p.Key)},
		{"modes", checkModes(p.Modes)},
		{"cluster.server", checkServer(p.Cluster.Server)},
		{"cluster.certificate-authority-data", checkCertificates(p.Cluster.CertificateAuthorityData)},
		{"cluster.tls-server-name", checkServerName(p.Cluster.TLSServerName)},
		{"cluster.proxy-url", checkProxy(p.Cluster.ProxyURL)},
		{"proxy.port", within(p.Proxy.Port >= 0 && p.Proxy.Port <= 65535, "a port is from 1 to 65535")},
		{"proxy.idle-timeout", within(p.Proxy.IdleTimeout >= 0, "it is negative")},
		{"proxy.max-age", within(p.Proxy.MaxAge >= 0, "it is negative")},
		{"certificate.signer-name", checkSigner(p.Certificate.SignerName)},
		{"certificate.lifetime", checkLifetime(p.Certificate.Lifetime)},
		{"token.namespace", p.checkToken(p.Token.Namespace, label, "a namespace")},
		{"token.service-account", p.checkToken(p.Token.ServiceAccount, subdomain, "a service account's name")},
		{"token.audiences", checkAudiences(p.Token.Audiences)},
		{"token.lifetime", checkLifetime(p.Token.Lifetime)},
		{"renewal.signer-name", checkSigner(p.Renewal.SignerName)},
		{"renewal.lifetime", checkLifetime(p.Renewal.Lifetime)},
		{"renewal.fraction", within(p.Renewal.Fraction >= 0 && p.Renewal.Fraction < 1, "a fraction is more than 0 and less than 1")},
		{"renewal.jitter", p.checkJitter()},
	} {
		if f.err != nil {
			found = append(found, f)
		}
	}
	return found
}

func within(ok bool, fact string) error {
	if ok {
		return nil
	}
	return errors.New(fact)
}

func checkKey(name string) error {
	if name == "" {
		return errors.New("it is missing: name a key, or a set of keys")
	}
	return keys.CheckName(name)
}

func checkModes(modes []string) error {
	known := []string{ModeProxy, ModeCertificate, ModeToken}
	for i, mode := range modes {
		if !slices.Contains(known, mode) {
			return fmt.Errorf("there is no mode %.80q; the modes are %s", mode, strings.Join(known, ", "))
		}
		if slices.Contains(modes[:i], mode) {
			return fmt.Errorf("%s is there twice", mode)
		}
	}
	return nil
}

// checkServer accepts the servers that client-go connects to over TLS. Errors do not
// show the value: it may hold a password.
func checkServer(server string) error {
	if server == "" {
		return errors.New("it is missing: give https://HOST:PORT")
	}
	u, err := url.Parse(server)
	switch {
	case err != nil:
		return errors.New("it is not a URL such as https://HOST:PORT")
	case u.Scheme != "https":
		return errors.New("it does not start with https://: a key signs in over TLS only")
	case u.User != nil:
		return errors.New("it holds a user name")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(server, "#"):
		return errors.New("it holds a query or a fragment")
	}
	return checkHost(u)
}

func checkHost(u *url.URL) error {
	host := u.Hostname()
	if net.ParseIP(host) == nil && !subdomain.MatchString(strings.ToLower(strings.TrimSuffix(host, "."))) {
		return fmt.Errorf("%.80q is neither a host's name nor an address", host)
	}
	if strings.HasSuffix(u.Host, ":") {
		return errors.New("the port is missing after the colon")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return errors.New("a port is from 1 to 65535")
		}
	}
	return nil
}

// checkCertificates accepts only certificates: a file that also holds a private key,
// given as the CA by mistake, would copy that key.
func checkCertificates(text string) error {
	if text == "" {
		return errors.New("it is missing: give the certificates of the cluster's CA")
	}
	count := 0
	for rest := []byte(text); ; count++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("it holds a %.40s; it must hold only certificates", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("certificate %d: %w", count+1, err)
		}
	}
	return within(count > 0, "it holds no certificate in PEM")
}

func checkServerName(name string) error {
	if name == "" || net.ParseIP(name) != nil || len(name) <= 253 && subdomain.MatchString(strings.ToLower(name)) {
		return nil
	}
	return fmt.Errorf("%.80q is neither a host's name nor an address", name)
}

// checkProxy accepts the schemes that client-go accepts (clientcmd
// validateClusterInfo, net/http). Errors do not show the value: it may hold a
// password.
func checkProxy(proxy string) error {
	if proxy == "" {
		return nil
	}
	u, err := url.Parse(proxy)
	if err != nil {
		return errors.New("it is not a URL such as http://HOST:PORT")
	}
	if !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
		return errors.New("it starts with none of http://, https:// and socks5://")
	}
	return checkHost(u)
}

func checkSigner(name string) error {
	switch {
	case name == "":
		return nil
	case len(name) > 571 || !signer.MatchString(name):
		return fmt.Errorf("%.80q is not a signer's name such as example.com/people", name)
	case name == "kubernetes.io/legacy-unknown":
		return errors.New("no current version of the API has the signer kubernetes.io/legacy-unknown")
	}
	return nil
}

func checkLifetime(d time.Duration) error {
	switch {
	case d == 0:
		return nil
	case d < MinLifetime:
		return fmt.Errorf("%v is shorter than %v, the shortest that the API server accepts", d, MinLifetime)
	case d > MaxLifetime:
		return fmt.Errorf("%v is longer than the API server accepts", d)
	}
	return within(d%time.Second == 0, "it is not a whole number of seconds")
}

func (p *Profile) checkToken(name string, grammar *regexp.Regexp, what string) error {
	switch {
	case name == "" && slices.Contains(p.Modes, ModeToken):
		return errors.New("it is missing: mode token needs it")
	case name != "" && (len(name) > 253 || !grammar.MatchString(name)):
		return fmt.Errorf("%.80q is not %s", name, what)
	}
	return nil
}

func checkAudiences(audiences []string) error {
	for i, a := range audiences {
		switch {
		case a == "":
			return errors.New("one is empty")
		case slices.Contains(audiences[:i], a):
			return fmt.Errorf("%.80q is there twice", a)
		}
	}
	return nil
}

// checkJitter rejects a jitter with which a renewal could be due at once: jitter
// moves renewals earlier.
func (p *Profile) checkJitter() error {
	fraction := cmp.Or(p.Renewal.Fraction, DefaultFraction)
	if j := p.Renewal.Jitter; !(j >= 0 && j < fraction) {
		return fmt.Errorf("it is not from 0 to less than the fraction after which to renew, %v", fraction)
	}
	return nil
}
