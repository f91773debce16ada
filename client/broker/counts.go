package broker

import (
	"crypto/x509"
	"encoding/pem"
	"sync"
	"time"

	"holdfast/internal/brokerwire"
	"holdfast/internal/metrics"
)

// counts holds the metrics of the broker itself.
type counts struct {
	answers   *metrics.Counter
	refused   *metrics.Counter
	ttl       *metrics.Gauge
	rotation  *metrics.Histogram
	lifetimes *lifetimes
}

// rotationBuckets are those of client-go's
// rest_client_exec_plugin_certificate_rotation_age (KEP-541): 10 minutes, half an
// hour, 1 and 4 hours, a day, a week, 1, 3 and 6 months, 1 and 4 years.
func rotationBuckets() []float64 {
	return []float64{600, 1800, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000}
}

func newCounts(r *metrics.Registry) counts {
	return counts{
		answers:   r.Counter("holdfast_broker_plugin_answers_total", "Answers to runs of the exec plugin, by the exit code that the plugin gives for them.", "code", "mode"),
		refused:   r.Counter("holdfast_broker_refused_connections_total", "Connections that were closed unread.", "reason"),
		ttl:       r.Gauge("holdfast_broker_shortest_ttl_seconds", "Time until the first of the credentials that were given out ends; negative when it has.", "mode"),
		rotation:  r.Histogram("holdfast_broker_certificate_rotation_age_seconds", "Age of a certificate when it was first answered with another one.", rotationBuckets()),
		lifetimes: &lifetimes{last: map[given]credential{}},
	}
}

// answer counts an answer. A mode that does not exist is the caller's text and must not
// become a label.
func (c counts) answer(code, mode string) {
	if operation(mode) == "" {
		mode = metrics.Other
	}
	c.answers.Add(1, code, mode)
}

// given notes a credential that was given out.
func (c counts) given(uid uint32, profile, mode string, credential brokerwire.Credential) {
	if age, rotated := c.lifetimes.note(given{uid, profile, mode}, credential, time.Now()); rotated {
		c.rotation.Observe(age.Seconds())
	}
}

// lifetimes holds the last credential that each user was given: its end, and the
// beginning of a certificate. It keeps no secret.
type lifetimes struct {
	mu   sync.Mutex
	last map[given]credential
}

type given struct {
	uid     uint32
	profile string
	mode    string
}

type credential struct {
	certificate string // its serial number; empty for a token
	since       time.Time
	until       time.Time
}

// A credential is removed forgetAfter its end, and there are maxLifetimes at most.
const (
	forgetAfter  = time.Hour
	maxLifetimes = 4096
)

// note returns the age of the certificate that this one replaces.
func (l *lifetimes) note(who given, c brokerwire.Credential, now time.Time) (age time.Duration, rotated bool) {
	next := credential{until: c.ExpirationTimestamp}
	if block, _ := pem.Decode([]byte(c.ClientCertificateData)); block != nil {
		if leaf, err := x509.ParseCertificate(block.Bytes); err == nil {
			next.certificate, next.since = leaf.SerialNumber.String(), leaf.NotBefore
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	before, known := l.last[who]
	if known || len(l.last) < maxLifetimes {
		l.last[who] = next
	}
	if before.certificate == "" || before.certificate == next.certificate {
		return 0, false
	}
	return now.Sub(before.since), true
}

// forget is called with mu held.
func (l *lifetimes) forget(now time.Time) {
	for who, c := range l.last {
		if now.Sub(c.until) > forgetAfter {
			delete(l.last, who)
		}
	}
}

// show sets the gauge to the shortest remaining lifetime of each mode.
func (l *lifetimes) show(ttl *metrics.Gauge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.forget(now)
	shortest := map[string]time.Duration{}
	for who, c := range l.last {
		left := c.until.Sub(now)
		if least, ok := shortest[who.mode]; !ok || left < least {
			shortest[who.mode] = left
		}
	}
	for mode, left := range shortest {
		ttl.Set(left.Seconds(), mode)
	}
}
