package profile

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"holdfast/internal/strictyaml"
)

// MaxFile is the size of the largest profile, in bytes.
const MaxFile = strictyaml.MaxFile

// Parse reads one profile strictly: unknown and repeated words, wrong types and
// invalid values are errors, all of them joined, each as "NAME.yaml:line: fault".
// Omitted words get their defaults.
func Parse(name string, data []byte) (*Profile, error) {
	return parse(name+extension, name, data)
}

func parse(file, name string, data []byte) (*Profile, error) {
	if err := CheckName(name); err != nil {
		return nil, fmt.Errorf("%s:1: %w", file, err)
	}
	yaml, root, err := strictyaml.Parse(file, data)
	if err != nil {
		return nil, err
	}
	p := &Profile{Name: name}
	r := &reader{Reader: yaml, lines: map[string]int{}, faulty: map[string]bool{}}
	if r.profile(p)("", root) {
		r.check(p)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	p.complete()
	return p, nil
}

func (r *reader) profile(p *Profile) take {
	return r.section(map[string]take{
		"key":   r.text(&p.Key),
		"modes": r.texts(&p.Modes),
		"cluster": r.section(map[string]take{
			"server":                     r.text(&p.Cluster.Server),
			"certificate-authority-data": r.text(&p.Cluster.CertificateAuthorityData),
			"tls-server-name":            r.text(&p.Cluster.TLSServerName),
			"proxy-url":                  r.text(&p.Cluster.ProxyURL),
			"disable-compression":        value(&p.Cluster.DisableCompression, "", r.Bool),
		}),
		"proxy": r.section(map[string]take{
			"port":         r.port(&p.Proxy.Port),
			"no-pool":      value(&p.Proxy.NoPool, "", r.Bool),
			"idle-timeout": value(&p.Proxy.IdleTimeout, "", r.Duration),
			"max-age":      value(&p.Proxy.MaxAge, "", r.Duration),
		}),
		"certificate": r.section(map[string]take{
			"signer-name": r.text(&p.Certificate.SignerName),
			"lifetime":    value(&p.Certificate.Lifetime, "", r.Duration),
		}),
		"token": r.section(map[string]take{
			"namespace":       r.text(&p.Token.Namespace),
			"service-account": r.text(&p.Token.ServiceAccount),
			"audiences":       r.texts(&p.Token.Audiences),
			"lifetime":        value(&p.Token.Lifetime, "", r.Duration),
		}),
		"renewal": r.section(map[string]take{
			"signer-name": r.text(&p.Renewal.SignerName),
			"lifetime":    value(&p.Renewal.Lifetime, "", r.Duration),
			"fraction":    value(&p.Renewal.Fraction, "a fraction such as 0.7", r.fraction),
			"jitter":      value(&p.Renewal.Jitter, "a fraction such as 0.7", r.Float),
			"new-key":     value(&p.Renewal.NewKey, "", r.Bool),
		}),
	})
}

// check records the faults of the values, each on the line of its word, or of its
// section when the word is missing. A word whose value could not be read has a fault
// already.
func (r *reader) check(p *Profile) {
	for _, f := range p.faults() {
		section, _, _ := strings.Cut(f.word, ".")
		if r.faulty[f.word] || r.faulty[section] {
			continue
		}
		line := cmp.Or(r.lines[f.word], r.lines[section], 1)
		r.Errorf(&strictyaml.Node{Line: line}, "%s: %w", f.word, f.err)
	}
}

// The defaults of a profile.
const (
	DefaultIdleTimeout   = 90 * time.Second
	DefaultMaxAge        = time.Hour
	DefaultTokenLifetime = 10 * time.Minute
	DefaultFraction      = 0.7
)

// complete sets the defaults of omitted words. Those that depend on the owner of the
// key (the signer, the lifetime of certificates) stay empty.
func (p *Profile) complete() {
	if len(p.Modes) == 0 {
		p.Modes = []string{ModeProxy}
	}
	p.Proxy.IdleTimeout = cmp.Or(p.Proxy.IdleTimeout, DefaultIdleTimeout)
	p.Proxy.MaxAge = cmp.Or(p.Proxy.MaxAge, DefaultMaxAge)
	p.Token.Lifetime = cmp.Or(p.Token.Lifetime, DefaultTokenLifetime)
	p.Renewal.Fraction = cmp.Or(p.Renewal.Fraction, DefaultFraction)
}
