package agent_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
)

// A right that is taken away while a request waits is gone when its turn comes.
func TestWaitingRequestsAreDecidedAgain(t *testing.T) {
	for name, takeAway := range map[string]func(*rig) error{
		"policy": func(r *rig) error {
			r.policy = func() (*policy.Policy, error) {
				return policy.Parse("policy.yaml", []byte("version: 1\nrules:\n- deny: [use]\n  anyone: true\n- allow: [all]\n  uids: [0]\n  owner: self\n"))
			}
			return r.agent.Reload(context.Background())
		},
		"key": func(r *rig) error { return r.store.Delete(uint32(os.Getuid()), "alice") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.create("alice", keys.TLSClient)
			r.create("other", keys.TLSClient)
			release := r.memory.Block()
			results := make(chan error, 2)
			go func() { _, err := r.signClient("other"); results <- err }() // holds the device
			r.memory.WaitBlocked()
			go func() { _, err := r.signClient("alice"); results <- err }()
			r.waitForRecord(`"key":"alice"`, `"decision":"allow"`, "sign-tls-client")
			before := r.memory.Signs()
			if err := takeAway(r); err != nil {
				t.Fatal(err)
			}
			release()
			denied := 0
			for range 2 {
				if err := <-results; fault.KindOf(err) == fault.Denied {
					denied++
				}
			}
			if denied != 1 || r.memory.Signs() != before {
				t.Errorf("%d requests were denied and the device signed %d times more, want 1 and 0", denied, r.memory.Signs()-before)
			}
		})
	}
}

// waitForRecord returns once the audit log has a line with all these words.
func (r *rig) waitForRecord(words ...string) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, line := range r.auditLines() {
			found := true
			for _, w := range words {
				found = found && strings.Contains(line, w)
			}
			if found {
				return
			}
		}
	}
	r.t.Fatalf("no record with %q", words)
}

// Two calls with one request id make one key, even at the same time.
func TestSimultaneousRepeatGivesTheSameKey(t *testing.T) {
	r := newRig(t)
	r.memory.Delay(20 * time.Millisecond)
	var all sync.WaitGroup
	replies := make([]agentwire.KeyReply, 4)
	for i := range replies {
		all.Go(func() {
			p := agentwire.CreateKeyParameters{Name: "alice", Purpose: string(keys.TLSClient), RequestID: "one"}
			if err := r.call(agentwire.CreateKey, p, &replies[i]); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	all.Wait()
	for i, reply := range replies {
		if string(reply.Key.PublicKey) != string(replies[0].Key.PublicKey) {
			t.Errorf("call %d got another key", i)
		}
	}
}

func TestStatusAsksThePolicy(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.policy = func() (*policy.Policy, error) {
			return policy.Parse("policy.yaml", []byte("version: 1\nrules:\n- deny: [status]\n  uids: [0]\n- allow: [all]\n  uids: [0]\n  owner: self\n"))
		}
	})
	wantKind(t, r.call(agentwire.GetStatus, agentwire.Empty{}, &agentwire.GetStatusReply{}), fault.Denied)
}

// Many callers that ask for the status cause few questions to the device.
func TestStatusSparesTheDevice(t *testing.T) {
	r := newRig(t)
	for range 50 {
		if err := r.call(agentwire.GetStatus, agentwire.Empty{}, &agentwire.GetStatusReply{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.memory.asked.Load(); got > 3 {
		t.Errorf("the device was asked %d times for 50 questions", got)
	}
}

func TestExportsAreBounded(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	lines, busy := len(r.auditLines()), 0
	conn := r.dial()
	for range 200 {
		err := asKeysError(conn.Call(t.Context(), agentwire.ExportKey, agentwire.NameParameters{Name: "alice"}, &agentwire.ExportKeyReply{}))
		if fault.KindOf(err) == fault.Busy {
			busy++
		}
	}
	if got := len(r.auditLines()) - lines; busy != 80 || got != 240 {
		t.Errorf("200 exports: %d were refused and %d records written, want 80 and 240", busy, got)
	}
}

func TestUsersOfAMachineHaveSoManyKeys(t *testing.T) {
	r := newRig(t, system)
	make := func(uid uint32, name string, persistent bool) string {
		p := agentwire.CreateKeyParameters{Name: name, Purpose: "tls-client", Persistent: persistent}
		return r.as(uid, r.socket, agentwire.CreateKey, p).Error
	}
	for i, want := range []string{"", "", agentwire.Errors().ErrorName(fault.Denied)} {
		if got := make(alice, fmt.Sprint("p", i), true); got != want {
			t.Errorf("persistent key %d: got %q, want %q", i+1, got, want)
		}
	}
	if got := make(bob, "p", true); got != "" {
		t.Errorf("another user: got %q", got)
	}
	for i := range 28 { // 30 in a minute, the two above included
		if got := make(alice, fmt.Sprint("k", i), false); got != "" {
			t.Fatalf("key %d: %q", i, got)
		}
	}
	if got := make(alice, "more", false); got != agentwire.Errors().ErrorName(fault.Busy) {
		t.Errorf("the 31st key in a minute: got %q, want busy", got)
	}
}

// An unlock that is cancelled while it waits for the device costs no try.
func TestAbandonedUnlockCostsNoTry(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient, func(p *agentwire.CreateKeyParameters) { p.PIN = []byte("right-pin") })
	r.create("other", keys.TLSClient)
	release := r.memory.Block()
	held := make(chan error, 1)
	go func() { _, err := r.signClient("other"); held <- err }()
	r.memory.WaitBlocked()
	in := agentwire.UnlockKeyParameters{Name: "alice", PIN: []byte("right-pin")}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := r.dial().Call(ctx, agentwire.UnlockKey, in, &agentwire.UnlockKeyReply{}); err == nil {
			t.Error("unlocked while the device was busy")
		}
		cancel()
	}
	release()
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	var err error
	for range 100 { // until the agent has noticed that the callers are gone
		if err = r.call(agentwire.UnlockKey, in, &agentwire.UnlockKeyReply{}); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("the right PIN is refused: %v", err)
}

func TestIssuersWithHugeKeysAreRefused(t *testing.T) {
	r := newRig(t)
	key := r.create("alice", keys.TLSClient)
	public, err := keys.ParsePublic(key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	huge := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 65536, 1), E: 65537}
	leaf, err1 := x509.CreateCertificate(rand.Reader, certificate("leaf"), certificate("issuer"), public, signer)
	issuer, err2 := x509.CreateCertificate(rand.Reader, certificate("issuer"), certificate("issuer"), huge, signer)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	p := agentwire.InstallCertificateParameters{Name: "alice", Chain: [][]byte{leaf, issuer}}
	err = r.call(agentwire.InstallCertificate, p, &agentwire.KeyReply{})
	wantKind(t, err, fault.BadRequest)
	if err != nil && !strings.Contains(err.Error(), "8192 bits") {
		t.Errorf("got %v, want a word about the key's size", err)
	}
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

func TestStopIsRecorded(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient) // the agent serves
	r.restart()
	lines := strings.Join(r.auditLines(), "\n")
	if !strings.Contains(lines, `"kind":"stop"`) || strings.Count(lines, `"kind":"start"`) != 2 {
		t.Errorf("the log does not tell a stop between two starts:\n%s", lines)
	}
}

// A file that falsely claims that its key has no PIN costs PIN tries of its owner, not of
// the device.
func TestLyingKeyFilesAreChargedAsPINTries(t *testing.T) {
	r := newRig(t)
	r.memory.refuse = &fault.Error{Kind: fault.PINRequired, Message: "the file says that the key has no PIN, and it has one"}
	var got []fault.Kind
	for i := range 7 {
		p := agentwire.AdoptKeyParameters{Name: "lie", Purpose: "tls-client", File: fmt.Sprint("file ", i), AllowImported: true}
		got = append(got, fault.KindOf(r.call(agentwire.AdoptKey, p, &agentwire.KeyReply{})))
	}
	if want := "[pin-required pin-required pin-required pin-required pin-required pin-blocked pin-blocked]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
