package agent_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/agent"
	"holdfast/agent/audit"
	"holdfast/agent/store"
	"holdfast/internal/agentwire"
	"holdfast/internal/door"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/keys/keystest"
	"holdfast/internal/policy"
	"holdfast/internal/varlink"
)

// rig is an agent over software keys, on a socket of its own.
type rig struct {
	t         testing.TB
	dir       string
	socket    string
	memory    *device
	cards     *keystest.MemoryCards // nil: none
	agent     *agent.Agent
	store     *store.Store
	audit     *audit.Log
	policy    func() (*policy.Policy, error)
	options   agent.Options
	use       *door.Socket
	logClosed bool         // by the test
	passed    atomic.Int64 // what passTime adds to the clock of the agent's grants
	binary    string       // a copy of this test that other users can run
}

// device counts what it is told to delete, and can be made to fail to persist.
type device struct {
	*keystest.Memory
	deleted atomic.Int32
	asked   atomic.Int32
	refuse  error // what Import answers
	persist func() error
	unseal  func([]byte) []byte // what becomes of a secret that was opened
	sign    func() error        // what Sign answers instead, when it is not nil
	lent    []byte              // the last PIN, as Unlock got it
	status  func()              // called by Status, when it is not nil
}

// Import implements keys.Backend.
func (d *device) Import(ctx context.Context, t keys.Template, file []byte, allowImported bool) (keys.Material, error) {
	if d.refuse != nil {
		return keys.Material{}, d.refuse
	}
	return d.Memory.Import(ctx, t, file, allowImported)
}

// Unlock implements keys.Backend.
func (d *device) Unlock(ctx context.Context, m keys.Material, pin []byte, until time.Time) error {
	d.lent = pin
	return d.Memory.Unlock(ctx, m, pin, until)
}

// Sign implements keys.Backend.
func (d *device) Sign(ctx context.Context, m keys.Material, s keys.Scheme, digest []byte) ([]byte, error) {
	if d.sign != nil {
		if err := d.sign(); err != nil {
			return nil, err
		}
	}
	return d.Memory.Sign(ctx, m, s, digest)
}

// Status implements keys.Backend.
func (d *device) Status(ctx context.Context) keys.Status {
	d.asked.Add(1)
	if d.status != nil {
		d.status()
	}
	return d.Memory.Status(ctx)
}

// Persist implements keys.Backend.
func (d *device) Persist(ctx context.Context, m keys.Material) error {
	if d.persist != nil {
		return d.persist()
	}
	return d.Memory.Persist(ctx, m)
}

// Delete implements keys.Backend.
func (d *device) Delete(ctx context.Context, m keys.Material) error {
	d.deleted.Add(1)
	return d.Memory.Delete(ctx, m)
}

// Unseal implements keys.Sealer.
func (d *device) Unseal(ctx context.Context, sealed json.RawMessage) ([]byte, error) {
	secret, err := d.Memory.Unseal(ctx, sealed)
	if err == nil && d.unseal != nil {
		secret = d.unseal(secret)
	}
	return secret, err
}

func newRig(t testing.TB, change ...func(*rig)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), memory: &device{Memory: keystest.NewMemory()}}
	r.policy = func() (*policy.Policy, error) { return policy.UserDefault(uint32(os.Getuid())), nil }
	for _, c := range change {
		c(r)
	}
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	r.start()
	t.Cleanup(r.stop)
	return r
}

func (r *rig) start() {
	r.t.Helper()
	var err error
	if r.store, err = store.Open(filepath.Join(r.dir, "state")); err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(r.dir, "audit.log")
	if r.audit, err = audit.Open(path); err != nil {
		r.t.Fatal(err)
	}
	o := r.options
	o.Version, o.Store, o.Audit, o.AuditPath = "test", r.store, r.audit, path
	o.LoadPolicy = func() (*policy.Policy, error) { return r.policy() }
	o.Backends = []keys.Backend{r.memory}
	if r.cards != nil {
		o.Backends = append(o.Backends, r.cards)
	}
	if r.agent, err = agent.NewAt(o, r.now); err != nil {
		r.t.Fatal(err)
	}
	r.socket = filepath.Join(r.dir, "agent.sock")
	if r.use, err = door.Listen(r.socket, 0o666); err != nil {
		r.t.Fatal(err)
	}
	go r.agent.Serve(r.t.Context(), r.use)
}

func (r *rig) now() time.Time { return time.Now().Add(time.Duration(r.passed.Load())) }

// passTime makes every grant as old as if so much time had passed.
func (r *rig) passTime(d time.Duration) { r.passed.Add(int64(d)) }

// listenAdmin makes an admin socket.
func (r *rig) listenAdmin() string {
	r.t.Helper()
	path := filepath.Join(r.dir, "admin.sock")
	s, err := door.Listen(path, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	go r.agent.ServeAdmin(r.t.Context(), s)
	return path
}

// restart stops the agent and starts another one in its place.
func (r *rig) restart() {
	r.stop()
	r.start()
}

func (r *rig) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.agent.Shutdown(ctx); err != nil && !r.logClosed {
		r.t.Errorf("shutdown: %v", err)
	}
	r.audit.Close()
	r.store.Close()
}

// dial connects as this process.
func (r *rig) dial() *varlink.Conn {
	r.t.Helper()
	c, err := net.Dial("unix", r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	conn := varlink.NewConn(c)
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// call makes one call on a connection of its own.
func (r *rig) call(method string, in, out any) error {
	r.t.Helper()
	c := r.dial()
	defer c.Close()
	return asKeysError(c.Call(r.t.Context(), method, in, out))
}

func asKeysError(err error) error {
	var v *varlink.Error
	if !errors.As(err, &v) {
		return err
	}
	var p fault.Parameters
	json.Unmarshal(v.Parameters, &p)
	if e, ok := agentwire.Errors().ToError(v.Name, p); ok {
		return e
	}
	return err
}

func (r *rig) create(name string, purpose keys.Purpose, change ...func(*agentwire.CreateKeyParameters)) agentwire.Key {
	r.t.Helper()
	p := agentwire.CreateKeyParameters{Name: name, Purpose: string(purpose)}
	for _, c := range change {
		c(&p)
	}
	var reply agentwire.KeyReply
	if err := r.call(agentwire.CreateKey, p, &reply); err != nil {
		r.t.Fatalf("create %s: %v", name, err)
	}
	return reply.Key
}

// tls13 is the input of a TLS 1.3 CertificateVerify with SHA-256.
func tls13(side string) []byte {
	h := sha256.Sum256([]byte("a transcript"))
	return append([]byte(strings.Repeat(" ", 64)+"TLS 1.3, "+side+" CertificateVerify\x00"), h[:]...)
}

func (r *rig) signClient(key string) ([]byte, error) {
	var reply agentwire.SignReply
	err := r.call(agentwire.SignTLSClient, agentwire.SignTLSClientParameters{Key: key, Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client")}, &reply)
	return reply.Signature, err
}

func (r *rig) auditLines() []string {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, "audit.log"))
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func wantKind(t *testing.T, err error, want fault.Kind) {
	t.Helper()
	if got := fault.KindOf(err); err == nil || got != want {
		t.Errorf("got %v (kind %q), want kind %q", err, got, want)
	}
}

func TestSignatureVerifiesUnderTheKeyThatWasShown(t *testing.T) {
	r := newRig(t)
	key := r.create("alice", keys.TLSClient)
	signature, err := r.signClient("alice")
	if err != nil {
		t.Fatal(err)
	}
	public, err := keys.ParsePublic(key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(tls13("client"))
	if err := keys.Verify(public, keys.ECDSAP256SHA256, digest[:], signature); err != nil {
		t.Error(err)
	}
}

func TestMissingAndForbiddenKeysLookTheSame(t *testing.T) {
	uid := os.Getuid()
	rules := fmt.Sprintf("version: 1\nrules:\n- name: some\n  allow: [use, manage]\n  uids: [%d]\n  keys: [open]\n  owner: self\n- name: make\n  allow: [create]\n  uids: [%d]\n  owner: self\n", uid, uid)
	r := newRig(t, func(r *rig) {
		r.policy = func() (*policy.Policy, error) { return policy.Parse("policy.yaml", []byte(rules)) }
	})
	r.create("secret", keys.TLSClient)
	_, forbidden := r.signClient("secret")
	_, missing := r.signClient("nosuch")
	wantKind(t, forbidden, fault.Denied)
	wantKind(t, missing, fault.Denied)
	got := strings.ReplaceAll(fmt.Sprintf("%#v", forbidden), "secret", "nosuch")
	if want := fmt.Sprintf("%#v", missing); forbidden.Error() == "" || strings.ReplaceAll(forbidden.Error(), "secret", "nosuch") != missing.Error() {
		t.Errorf("a forbidden key answers %s, a missing one %s", got, want)
	}
	if n := r.memory.Signs(); n != 1 { // the trial signature of create
		t.Errorf("the device signed %d times, want 1", n)
	}
}

func TestOnlyThePurposesOwnVerbSigns(t *testing.T) {
	r := newRig(t)
	verbs := map[string]func(key string) error{
		"client": func(k string) error { _, err := r.signClient(k); return err },
		"server": func(k string) error {
			p := agentwire.SignParameters{Key: k, Scheme: string(keys.ECDSAP256SHA256), Message: tls13("server")}
			return r.call(agentwire.SignTLSServer, p, &agentwire.SignReply{})
		},
		"client message to SignTLSServer": func(k string) error {
			p := agentwire.SignParameters{Key: k, Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client")}
			return r.call(agentwire.SignTLSServer, p, &agentwire.SignReply{})
		},
		"server message to SignTLSClient": func(k string) error {
			p := agentwire.SignTLSClientParameters{Key: k, Scheme: string(keys.ECDSAP256SHA256), Message: tls13("server")}
			return r.call(agentwire.SignTLSClient, p, &agentwire.SignReply{})
		},
		"handshake to SignCertificateRequest": func(k string) error {
			p := agentwire.SignParameters{Key: k, Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client")}
			return r.call(agentwire.SignCertificateRequest, p, &agentwire.SignReply{})
		},
		"digest": func(k string) error {
			d := sha256.Sum256([]byte("x"))
			p := agentwire.SignTLSClientParameters{Key: k, Scheme: string(keys.ECDSAP256SHA256), Message: d[:]}
			return r.call(agentwire.SignTLSClient, p, &agentwire.SignReply{})
		},
		"other scheme": func(k string) error {
			p := agentwire.SignTLSClientParameters{Key: k, Scheme: string(keys.ECDSAP384SHA384), Message: tls13("client")}
			return r.call(agentwire.SignTLSClient, p, &agentwire.SignReply{})
		},
		"evidence": func(k string) error {
			p := agentwire.SignTLSClientParameters{Key: k, Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client"), Evidence: &agentwire.Evidence{}}
			return r.call(agentwire.SignTLSClient, p, &agentwire.SignReply{})
		},
	}
	signs := map[string]bool{"c client": true, "s server": true}
	r.create("c", keys.TLSClient)
	r.create("s", keys.TLSServer)
	for _, key := range []string{"c", "s"} {
		for verb, try := range verbs {
			before := r.memory.Signs()
			err := try(key)
			if signs[key+" "+verb] {
				if err != nil {
					t.Errorf("key %s, %s: %v", key, verb, err)
				}
				continue
			}
			if err == nil {
				t.Errorf("key %s, %s: signed", key, verb)
			}
			if n := r.memory.Signs() - before; n != 0 {
				t.Errorf("key %s, %s: the device was asked %d times", key, verb, n)
			}
		}
	}
}

func TestNothingIsSignedWithoutAuditRecord(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	before := r.memory.Signs()
	r.logClosed = true
	r.audit.Close() // from here on nothing can be appended
	_, err := r.signClient("alice")
	wantKind(t, err, fault.Internal)
	if n := r.memory.Signs() - before; n != 0 {
		t.Errorf("the device signed %d times without a record", n)
	}
}

func TestDecisionIsRecordedBeforeTheDeviceSigns(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	release := r.memory.Block()
	result := make(chan error, 1)
	go func() { _, err := r.signClient("alice"); result <- err }()
	r.memory.WaitBlocked()
	last := r.auditLines()[len(r.auditLines())-1]
	if !strings.Contains(last, `"decision"`) || !strings.Contains(last, "sign-tls-client") {
		t.Errorf("while the device works the last record is %s", last)
	}
	release()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	last = r.auditLines()[len(r.auditLines())-1]
	if !strings.Contains(last, `"outcome"`) || !strings.Contains(last, `"ok"`) {
		t.Errorf("after the reply the last record is %s", last)
	}
}

func TestWrongSignatureNeverLeaves(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	r.memory.SignWrong(true)
	_, err := r.signClient("alice")
	wantKind(t, err, fault.KeyMismatch)
	r.memory.SignWrong(false)
	before := r.memory.Signs()
	_, err = r.signClient("alice")
	wantKind(t, err, fault.KeyMismatch)
	if n := r.memory.Signs() - before; n != 0 {
		t.Error("a key that was set aside was used again")
	}
	if err := r.agent.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.signClient("alice"); err != nil {
		t.Errorf("after a reload: %v", err)
	}
}

func TestFailedReloadKeepsTheOldPolicy(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	good := r.policy
	r.policy = func() (*policy.Policy, error) { return policy.Parse("policy.yaml", []byte("version: 1\nrulez: []\n")) }
	err := r.agent.Reload(context.Background())
	if err == nil || !strings.Contains(err.Error(), "policy.yaml:2") {
		t.Errorf("got %v, want an error at policy.yaml:2", err)
	}
	if _, err := r.signClient("alice"); err != nil {
		t.Errorf("under the old policy: %v", err)
	}
	r.policy = good
}

func TestRepeatedCreateGivesTheSameKey(t *testing.T) {
	r := newRig(t)
	id := func(p *agentwire.CreateKeyParameters) { p.RequestID = "a" }
	first := r.create("alice", keys.TLSClient, id)
	second := r.create("alice", keys.TLSClient, id)
	if !bytes.Equal(first.PublicKey, second.PublicKey) {
		t.Error("a repeat made another key")
	}
	p := agentwire.CreateKeyParameters{Name: "alice", Purpose: string(keys.TLSClient), RequestID: "b"}
	wantKind(t, r.call(agentwire.CreateKey, p, &agentwire.KeyReply{}), fault.BadRequest)
	p.RequestID = ""
	wantKind(t, r.call(agentwire.CreateKey, p, &agentwire.KeyReply{}), fault.BadRequest)
}

func TestPurposesWithoutVerbAreRefused(t *testing.T) {
	r := newRig(t)
	for _, p := range keys.Purposes() {
		if p.TLS() {
			continue
		}
		err := r.call(agentwire.CreateKey, agentwire.CreateKeyParameters{Name: "x", Purpose: string(p)}, &agentwire.KeyReply{})
		wantKind(t, err, fault.Unsupported)
	}
}

// TestNoPINForAKeySetAside: a device that gave a wrong signature gets no PIN.
func TestNoPINForAKeySetAside(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient, func(p *agentwire.CreateKeyParameters) { p.PIN = []byte("right-pin") })
	unlock := func(pin string) error {
		return r.call(agentwire.UnlockKey, agentwire.UnlockKeyParameters{Name: "alice", PIN: []byte(pin)}, &agentwire.UnlockKeyReply{})
	}
	if err := unlock("right-pin"); err != nil {
		t.Fatal(err)
	}
	r.memory.SignWrong(true)
	_, err := r.signClient("alice")
	wantKind(t, err, fault.KeyMismatch)
	for _, pin := range []string{"right-pin", "wrong-pin", ""} {
		wantKind(t, unlock(pin), fault.KeyMismatch)
	}
	if err := r.agent.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := unlock("right-pin"); err != nil {
		t.Errorf("after the reload: %v", err)
	}
}

func TestPINIsTriedTwiceAnHour(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient, func(p *agentwire.CreateKeyParameters) { p.PIN = []byte("right-pin") })
	_, err := r.signClient("alice")
	wantKind(t, err, fault.PINRequired)
	unlock := func(pin string) error {
		return r.call(agentwire.UnlockKey, agentwire.UnlockKeyParameters{Name: "alice", PIN: []byte(pin)}, &agentwire.UnlockKeyReply{})
	}
	wantKind(t, unlock("wrong-pin"), fault.PINRequired)
	if err := unlock("right-pin"); err != nil {
		t.Fatalf("the right PIN after a wrong one: %v", err)
	}
	if _, err := r.signClient("alice"); err != nil {
		t.Errorf("after unlock: %v", err)
	}
	if err := r.call(agentwire.LockKeys, agentwire.Empty{}, &agentwire.Empty{}); err != nil {
		t.Fatal(err)
	}
	_, err = r.signClient("alice")
	wantKind(t, err, fault.PINRequired)
	wantKind(t, unlock("wrong-pin"), fault.PINRequired)
	wantKind(t, unlock("wrong-pin"), fault.PINRequired)
	wantKind(t, unlock("right-pin"), fault.PINBlocked) // the right one, but no more tries this hour
	for _, line := range r.auditLines() {
		if strings.Contains(line, "right-pin") || strings.Contains(line, "wrong-pin") {
			t.Errorf("a PIN is in the audit log: %s", line)
		}
	}
}

func TestUnlockLastsAsLongAsAsked(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient, func(p *agentwire.CreateKeyParameters) { p.PIN = []byte("right-pin") })
	for seconds, want := range map[int]time.Duration{0: 15 * time.Minute, 60: time.Minute, 3600: time.Hour} {
		var reply agentwire.UnlockKeyReply
		p := agentwire.UnlockKeyParameters{Name: "alice", PIN: []byte("right-pin"), Seconds: seconds}
		if err := r.call(agentwire.UnlockKey, p, &reply); err != nil {
			t.Fatal(err)
		}
		if got := time.Until(reply.UnlockedUntil); got > want || got < want-time.Minute/2 {
			t.Errorf("%d s: unlocked for %v, want %v", seconds, got, want)
		}
	}
	for _, seconds := range []int{-1, 3601} {
		p := agentwire.UnlockKeyParameters{Name: "alice", PIN: []byte("right-pin"), Seconds: seconds}
		wantKind(t, r.call(agentwire.UnlockKey, p, &agentwire.UnlockKeyReply{}), fault.BadRequest)
	}
}

func TestWatchTellsOfKeysAndPolicy(t *testing.T) {
	r := newRig(t)
	events := make(chan agentwire.WatchReply, 16)
	ended := make(chan error, 1)
	c := r.dial()
	go func() {
		ended <- c.CallMore(t.Context(), agentwire.Watch, agentwire.Empty{}, func(raw json.RawMessage, _ bool) error {
			var e agentwire.WatchReply
			err := json.Unmarshal(raw, &e)
			events <- e
			return err
		})
	}()
	next := func() agentwire.WatchReply {
		t.Helper()
		select {
		case e := <-events:
			return e
		case err := <-ended:
			t.Fatalf("the watch ended: %v", err)
		case <-time.After(30 * time.Second):
			t.Fatal("nothing came")
		}
		return agentwire.WatchReply{}
	}
	r.waitForWatcher()
	r.create("alice", keys.TLSClient)
	if got, want := next(), (agentwire.WatchReply{What: "key", Name: "alice"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := r.agent.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, want := next(), (agentwire.WatchReply{What: "policy"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	c.Close()
	if err := <-ended; err == nil {
		t.Error("the watch ended without an error")
	}
}

// waitForWatcher returns once a watcher is connected, so that no event is lost.
func (r *rig) waitForWatcher() {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); r.agent.Watchers() == 0; {
		if time.Now().After(deadline) {
			r.t.Fatal("nobody watches")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestBoundKeysAreRefusedUntilServersCanBeVerified(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	bound, _ := r.store.Get(uint32(os.Getuid()), "alice")
	bound.Servers = []store.Server{{Address: "api.example:6443", CA: selfSigned(t)}}
	if err := r.store.Replace(bound); err != nil {
		t.Fatal(err)
	}
	_, err := r.signClient("alice")
	wantKind(t, err, fault.Unsupported)
	p := agentwire.BindKeyParameters{Name: "alice", Servers: []agentwire.Server{{Address: "api.example:6443", CA: "x"}}}
	wantKind(t, r.call(agentwire.BindKey, p, &agentwire.KeyReply{}), fault.Unsupported)
}

// selfSigned returns a certificate in PEM.
func selfSigned(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, certificate("ca"), certificate("ca"), key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// A key file that is adopted again does not get another purpose.
func TestAKeyHasOneRecord(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	var file agentwire.ExportKeyReply
	if err := r.call(agentwire.ExportKey, agentwire.NameParameters{Name: "alice"}, &file); err != nil {
		t.Fatal(err)
	}
	for _, purpose := range []string{"tls-server", "tls-client"} {
		p := agentwire.AdoptKeyParameters{Name: "again", Purpose: purpose, File: file.File, AllowImported: true}
		wantKind(t, r.call(agentwire.AdoptKey, p, &agentwire.KeyReply{}), fault.Denied)
	}
	if _, err := r.signClient("alice"); err != nil {
		t.Errorf("the key itself, afterwards: %v", err)
	}
	if err := r.call(agentwire.DeleteKey, agentwire.NameParameters{Name: "alice"}, &agentwire.Empty{}); err != nil {
		t.Fatal(err)
	}
	p := agentwire.AdoptKeyParameters{Name: "again", Purpose: "tls-client", File: file.File}
	if err := r.call(agentwire.AdoptKey, p, &agentwire.KeyReply{}); err != nil {
		t.Errorf("adopted after it was deleted: %v", err)
	}
}

// Of two requests that adopt one key file at the same time, one gets the key.
func TestAdoptedAtTheSameTime(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	var file agentwire.ExportKeyReply
	if err := r.call(agentwire.ExportKey, agentwire.NameParameters{Name: "alice"}, &file); err != nil {
		t.Fatal(err)
	}
	if err := r.call(agentwire.DeleteKey, agentwire.NameParameters{Name: "alice"}, &agentwire.Empty{}); err != nil {
		t.Fatal(err)
	}
	adopt := func(name, purpose string) agentwire.AdoptKeyParameters {
		return agentwire.AdoptKeyParameters{Name: name, Purpose: purpose, File: file.File}
	}
	looked, goOn := make(chan struct{}, 16), make(chan struct{})
	r.memory.status = func() { looked <- struct{}{}; <-goOn } // before the record is stored
	first := r.calling(t.Context(), agentwire.AdoptKey, adopt("one", "tls-client"))
	<-looked
	second := r.call(agentwire.AdoptKey, adopt("two", "tls-server"), &agentwire.KeyReply{})
	close(goOn)
	wantKind(t, second, fault.Busy)
	if err := <-first; err != nil {
		t.Error(err)
	}
	wantKind(t, r.call(agentwire.AdoptKey, adopt("two", "tls-server"), &agentwire.KeyReply{}), fault.Denied)
	if all := r.store.List(); len(all) != 1 {
		t.Errorf("one key has %d records", len(all))
	}
}

// A caller who leaves while the key is made finds it there with the same request.
func TestLeavingDoesNotBreakCreation(t *testing.T) {
	r := newRig(t)
	r.memory.Delay(50 * time.Millisecond)
	p := agentwire.CreateKeyParameters{Name: "alice", Purpose: "tls-client", RequestID: "one"}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.dial().Call(ctx, agentwire.CreateKey, p, &agentwire.KeyReply{}); err == nil {
		t.Fatal("the key was there at once")
	}
	r.waitForRecord(`"outcome":"ok"`, `"create"`)
	before := r.memory.Signs()
	if err := r.call(agentwire.CreateKey, p, &agentwire.KeyReply{}); err != nil {
		t.Error(err)
	}
	if r.memory.Signs() != before {
		t.Error("the repeat made another key")
	}
}

func TestTailFitsIntoOneReply(t *testing.T) {
	r := newRig(t)
	for range 700 {
		err := r.audit.Append(audit.Record{Kind: "test", Detail: map[string]string{"long": strings.Repeat("x", 500), "more": strings.Repeat("\"", 500)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	var reply agentwire.TailAuditReply
	if err := r.call(agentwire.TailAudit, agentwire.TailAuditParameters{Records: 500}, &reply); err != nil {
		t.Fatal(err)
	}
	lines := r.auditLines()
	if n := len(reply.Records); n < 50 || reply.Records[n-1] != lines[len(lines)-1] {
		t.Errorf("got %d records, want many and the newest last", n)
	}
}

func TestFailedStoreLeavesNothingInTheDevice(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(r.dir, "state", "keys", fmt.Sprint(os.Getuid()))
	r.create("first", keys.TLSClient) // makes the directory
	if err := os.WriteFile(filepath.Join(path, "alice.json"), []byte("not a record"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := r.call(agentwire.CreateKey, agentwire.CreateKeyParameters{Name: "alice", Purpose: "tls-client"}, &agentwire.KeyReply{})
	if err == nil {
		t.Fatal("a key was made over a file that was in the way")
	}
	if got := r.memory.deleted.Load(); got != 1 {
		t.Errorf("the device was told to delete %d keys, want 1", got)
	}
	if data, _ := os.ReadFile(filepath.Join(path, "alice.json")); string(data) != "not a record" {
		t.Errorf("the file in the way is now %q", data)
	}
}

func TestRecordComesBeforeTheDevicesPlace(t *testing.T) {
	r := newRig(t)
	recorded := false
	r.memory.persist = func() error {
		_, recorded = r.store.Get(uint32(os.Getuid()), "alice")
		return &fault.Error{Kind: fault.Unsupported, Message: "no room"}
	}
	err := r.call(agentwire.CreateKey, agentwire.CreateKeyParameters{Name: "alice", Purpose: "tls-client", Persistent: true}, &agentwire.KeyReply{})
	wantKind(t, err, fault.Unsupported)
	if !recorded {
		t.Error("the device was told to keep a key that no record names")
	}
	if _, ok := r.store.Get(uint32(os.Getuid()), "alice"); ok || r.memory.deleted.Load() != 1 {
		t.Errorf("the failed key is still there: record %v, %d deletions", ok, r.memory.deleted.Load())
	}
}

func TestConnectionsOfAllUsersAreBounded(t *testing.T) {
	r := newRig(t, func(r *rig) { r.options.Limits.Connections = 2 })
	for range 2 {
		if err := r.dial().Call(t.Context(), agentwire.ListKeys, agentwire.Empty{}, &agentwire.ListKeysReply{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.call(agentwire.ListKeys, agentwire.Empty{}, &agentwire.ListKeysReply{}); err == nil {
		t.Error("a third connection was served")
	}
}

func TestConnectionsOfOneUserAreBounded(t *testing.T) {
	r := newRig(t, func(r *rig) { r.options.Limits.ConnectionsPerUID = 3 })
	for range 3 {
		if err := r.dial().Call(t.Context(), agentwire.ListKeys, agentwire.Empty{}, &agentwire.ListKeysReply{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.call(agentwire.ListKeys, agentwire.Empty{}, &agentwire.ListKeysReply{}); err == nil {
		t.Error("a fourth connection was served")
	}
}
