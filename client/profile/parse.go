package profile

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

// MaxFile is the size of the largest profile, in bytes.
const MaxFile = 1 << 20

// Parse reads one profile strictly: unknown and repeated words, wrong types and
// values that cannot work are errors, all of them joined, each as
// "NAME.yaml:line: fault". Words that are left out get their defaults.
func Parse(name string, data []byte) (*Profile, error) {
	return parse(name+extension, name, data)
}

func parse(file, name string, data []byte) (*Profile, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%s:1: longer than %d bytes", file, MaxFile)
	}
	if err := CheckName(name); err != nil {
		return nil, fmt.Errorf("%s:1: %w", file, err)
	}
	root, err := document(file, data)
	if err != nil {
		return nil, err
	}
	p := &Profile{Name: name}
	r := &reader{file: file, lines: map[string]int{}, faulty: map[string]bool{}}
	r.profile(p)("", root)
	if !r.faulty[""] {
		r.check(p)
	}
	if len(r.faults) > 0 {
		return nil, errors.Join(r.faults...)
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
			"disable-compression":        r.boolean(&p.Cluster.DisableCompression),
		}),
		"proxy": r.section(map[string]take{
			"port":         r.port(&p.Proxy.Port),
			"no-pool":      r.boolean(&p.Proxy.NoPool),
			"idle-timeout": r.duration(&p.Proxy.IdleTimeout),
			"max-age":      r.duration(&p.Proxy.MaxAge),
		}),
		"certificate": r.section(map[string]take{
			"signer-name": r.text(&p.Certificate.SignerName),
			"lifetime":    r.duration(&p.Certificate.Lifetime),
		}),
		"token": r.section(map[string]take{
			"namespace":       r.text(&p.Token.Namespace),
			"service-account": r.text(&p.Token.ServiceAccount),
			"audiences":       r.texts(&p.Token.Audiences),
			"lifetime":        r.duration(&p.Token.Lifetime),
		}),
		"renewal": r.section(map[string]take{
			"signer-name": r.text(&p.Renewal.SignerName),
			"lifetime":    r.duration(&p.Renewal.Lifetime),
			"fraction":    r.fraction(&p.Renewal.Fraction, false),
			"jitter":      r.fraction(&p.Renewal.Jitter, true),
			"new-key":     r.boolean(&p.Renewal.NewKey),
		}),
	})
}

// check adds what the values say, each fault on the line of its word, or of its
// section when the word is missing. A word whose value could not be read has its
// fault already.
func (r *reader) check(p *Profile) {
	for _, f := range p.faults() {
		section, _, _ := strings.Cut(f.word, ".")
		if r.faulty[f.word] || r.faulty[section] {
			continue
		}
		line := cmp.Or(r.lines[f.word], r.lines[section], 1)
		r.faults = append(r.faults, fmt.Errorf("%s:%d: %s: %w", r.file, line, f.word, f.err))
	}
}

// The defaults of a profile.
const (
	DefaultIdleTimeout   = 90 * time.Second
	DefaultMaxAge        = time.Hour
	DefaultTokenLifetime = 10 * time.Minute
	DefaultFraction      = 0.7
)

// complete gives what is left out its default. What depends on whose key it is
// (the signer, the lifetime of certificates) stays empty.
func (p *Profile) complete() {
	if len(p.Modes) == 0 {
		p.Modes = []string{ModeProxy}
	}
	if p.Proxy.IdleTimeout == 0 {
		p.Proxy.IdleTimeout = DefaultIdleTimeout
	}
	if p.Proxy.MaxAge == 0 {
		p.Proxy.MaxAge = DefaultMaxAge
	}
	if p.Token.Lifetime == 0 {
		p.Token.Lifetime = DefaultTokenLifetime
	}
	if p.Renewal.Fraction == 0 {
		p.Renewal.Fraction = DefaultFraction
	}
}
