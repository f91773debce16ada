package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/client/clienttest"
	"holdfast/client/enroll"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// Doctor reports an expiring certificate only when no renewal takes care of it, and
// never one that a newer generation replaces.
func TestDoctorRenewals(t *testing.T) {
	agent, _ := withAlice(t)
	m := healthy(t)
	startBroker(t)
	a := &app{socket: agent.Socket, machine: m, timeouts: usualTimeouts()}
	check(t, profile.Write(profile.Directory(false), &profile.Profile{
		Name: "prod", Key: "alice", Renewal: profile.Renewal{SignerName: enroll.PeopleSigner},
		Cluster: profile.Cluster{Server: "https://a", CertificateAuthorityData: string(clienttest.NewCA(t).PEM)},
	}))
	give := func(name string, from, to time.Duration) {
		agent.Change(name, func(k *agentwire.Key) { k.Chain = [][]byte{valid(t, from, to)} })
	}
	give("alice", -time.Hour, 9*time.Hour)
	if found, code := a.examine(t.Context()); code != exitDone || !found.has(stateOK, "keys", "nothing wrong") {
		t.Errorf("not due yet: %+v", found)
	}
	give("alice", -9*time.Hour, time.Hour)
	if found, code := a.examine(t.Context()); code != exitDone || !found.has(stateNote, "key alice", "renewal of its certificate was due") {
		t.Errorf("overdue: %+v", found)
	}
	give("alice", -9*time.Hour, -time.Hour)
	found, code := a.examine(t.Context())
	if code != exitFailed || !found.has(stateBad, "key alice", "expired on") {
		t.Errorf("expired: %+v", found)
	}
	if !slices.ContainsFunc(found, func(f finding) bool { return strings.Contains(f.Hint, "holdfast enroll kubernetes prod --key alice") }) {
		t.Errorf("expired: no hint that helps in %+v", found)
	}
	agent.AddKey("alice.1", keys.TLSClient, keys.ES256)
	give("alice.1", -time.Hour, 9*time.Hour)
	if found, code := a.examine(t.Context()); code != exitDone || !found.has(stateOK, "keys", "nothing wrong") {
		t.Errorf("with a newer generation: %+v", found)
	}
}

// valid is a certificate for some time, from now.
func valid(t *testing.T, from, to time.Duration) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	return der
}
