package agent_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"holdfast/agent/store"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
)

// aSecret is the secret that tests look for.
const aSecret = "a secret to look for in logs"

func (r *rig) seal(name string, change ...func(*agentwire.SealParameters)) error {
	r.t.Helper()
	p := agentwire.SealParameters{Name: name, Secret: []byte(aSecret)}
	for _, c := range change {
		c(&p)
	}
	return r.call(agentwire.Seal, p, &agentwire.Empty{})
}

func (r *rig) unseal(name string) (string, error) {
	r.t.Helper()
	var reply agentwire.UnsealReply
	err := r.call(agentwire.Unseal, agentwire.NameParameters{Name: name}, &reply)
	return string(reply.Secret), err
}

func (r *rig) wantUnseals(name, want string) {
	r.t.Helper()
	if got, err := r.unseal(name); err != nil || got != want {
		r.t.Errorf("unseal %s: got %q, %v, want %q", name, got, err, want)
	}
}

func replacing(p *agentwire.SealParameters) { p.Replace, p.Secret = true, []byte("another") }

func TestSealedSecretComesBack(t *testing.T) {
	r := newRig(t)
	r.create("web", keys.TLSClient) // its name has nothing to do with the secret's
	if err := r.seal("web"); err != nil {
		t.Fatal(err)
	}
	r.wantUnseals("web", aSecret)
	wantKind(t, r.seal("web"), fault.BadRequest)
	r.wantUnseals("web", aSecret)
	r.restart()
	r.wantUnseals("web", aSecret)
	if err := r.seal("web", replacing); err != nil {
		t.Error(err)
	}
	r.wantUnseals("web", "another")
	if err := r.call(agentwire.DeleteSealed, agentwire.NameParameters{Name: "web"}, &agentwire.Empty{}); err != nil {
		t.Error(err)
	}
	_, err := r.unseal("web")
	wantKind(t, err, fault.Denied)
	wantKind(t, r.call(agentwire.DeleteSealed, agentwire.NameParameters{Name: "web"}, &agentwire.Empty{}), fault.Denied)
	if _, err := r.signClient("web"); err != nil {
		t.Errorf("the key of that name: %v", err)
	}
}

func TestSealRefuses(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]struct {
		change func(*agentwire.SealParameters)
		want   fault.Kind
	}{
		"an empty secret":   {func(p *agentwire.SealParameters) { p.Secret = []byte{} }, fault.BadRequest},
		"a long one":        {func(p *agentwire.SealParameters) { p.Secret = make([]byte, keys.MaxSecret+1) }, fault.BadRequest},
		"a bad name":        {func(p *agentwire.SealParameters) { p.Name = "../x" }, fault.BadRequest},
		"no such backend":   {func(p *agentwire.SealParameters) { p.Backend = "piv" }, fault.Unsupported},
		"a long request id": {func(p *agentwire.SealParameters) { p.RequestID = strings.Repeat("x", 300) }, fault.BadRequest},
	} {
		t.Run(name, func(t *testing.T) { wantKind(t, r.seal("s", c.change), c.want) })
	}
	if _, ok := r.store.GetSealed(uint32(os.Getuid()), "s"); ok {
		t.Error("something was stored")
	}
	r.memory.Fail(&fault.Error{Kind: fault.DeviceLocked, Message: "locked"})
	wantKind(t, r.seal("s"), fault.DeviceLocked)
	r.memory.Fail(nil)
	if err := r.seal("s"); err != nil {
		t.Error(err)
	}
	r.memory.Fail(&fault.Error{Kind: fault.IdentityChanged, Message: "another one"})
	_, err := r.unseal("s")
	wantKind(t, err, fault.IdentityChanged)
}

// Seal fails for a device that does not give back what it sealed, while the user still
// has the secret.
func TestSealedSecretIsTried(t *testing.T) {
	r := newRig(t)
	r.memory.unseal = func(secret []byte) []byte { secret[0] ^= 1; return secret }
	wantKind(t, r.seal("s"), fault.KeyMismatch)
	if _, ok := r.store.GetSealed(uint32(os.Getuid()), "s"); ok {
		t.Error("it was stored")
	}
}

func TestRepeatedSealIsOne(t *testing.T) {
	r := newRig(t)
	once := func(p *agentwire.SealParameters) { p.RequestID = "one" }
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			if err := r.seal("s", once); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if rec, _ := r.store.GetSealed(uint32(os.Getuid()), "s"); rec.Generation != 1 {
		t.Errorf("it was written %d times", rec.Generation)
	}
	if err := r.seal("s", once, replacing); err != nil { // the first one's reply was lost, say
		t.Error(err)
	}
	r.wantUnseals("s", aSecret)
	wantKind(t, r.seal("s", func(p *agentwire.SealParameters) { p.RequestID = "two" }), fault.BadRequest)
}

// A missing and a forbidden secret get the same answer and the same record.
func TestMissingAndForbiddenSecretsLookTheSame(t *testing.T) {
	rules := fmt.Sprintf("version: 1\nrules:\n- allow: [seal]\n  uids: [%d]\n  owner: self\n- allow: [unseal]\n  uids: [%d]\n  keys: [open]\n  owner: self\n", os.Getuid(), os.Getuid())
	r := newRig(t, func(r *rig) {
		r.policy = func() (*policy.Policy, error) { return policy.Parse("policy.yaml", []byte(rules)) }
	})
	for _, name := range []string{"open", "hidden"} {
		if err := r.seal(name); err != nil {
			t.Fatal(err)
		}
	}
	r.wantUnseals("open", aSecret)
	answers, records := map[string]string{}, map[string]string{}
	for _, name := range []string{"hidden", "nosuch"} {
		_, err := r.unseal(name)
		wantKind(t, err, fault.Denied)
		e, _ := fault.AsError(err)
		answers[name] = strings.ReplaceAll(e.Message+"; "+e.Advice(), name, "NAME")
		lines := r.auditLines()
		var rec map[string]any
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &rec); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"time", "seq", "request", "prev", "caller"} {
			delete(rec, part)
		}
		records[name] = strings.ReplaceAll(fmt.Sprint(rec), name, "NAME")
	}
	if answers["hidden"] != answers["nosuch"] {
		t.Errorf("a forbidden secret answers %s, a missing one %s", answers["hidden"], answers["nosuch"])
	}
	if records["hidden"] != records["nosuch"] {
		t.Errorf("the records tell them apart:\n%s\n%s", records["hidden"], records["nosuch"])
	}
}

// Decision before the device, outcome before the reply, the name and never the
// secret; without the record nothing happens.
func TestSealingIsAudited(t *testing.T) {
	r := newRig(t)
	if err := r.seal("mine"); err != nil {
		t.Fatal(err)
	}
	r.wantUnseals("mine", aSecret)
	if err := r.call(agentwire.DeleteSealed, agentwire.NameParameters{Name: "mine"}, &agentwire.Empty{}); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, line := range r.auditLines() {
		var rec struct{ Kind, Operation, Key, Decision, Outcome string }
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatal(err)
		}
		if rec.Key == "mine" {
			said = append(said, rec.Operation+" "+rec.Decision+rec.Outcome)
		}
		for _, form := range []string{aSecret, base64.StdEncoding.EncodeToString([]byte(aSecret))} {
			if strings.Contains(line, form) {
				t.Errorf("the log has the secret: %s", line)
			}
		}
	}
	if got, want := strings.Join(said, ", "), "seal allow, seal ok, unseal allow, unseal ok, seal allow, seal ok"; got != want {
		t.Errorf("the log says %q, want %q", got, want)
	}
	if err := r.seal("mine"); err != nil {
		t.Fatal(err)
	}
	r.logClosed = true
	r.audit.Close() // from here on nothing can be appended
	secret, err := r.unseal("mine")
	wantKind(t, err, fault.Internal)
	if secret != "" {
		t.Error("the secret left without a record")
	}
	wantKind(t, r.seal("more"), fault.Internal)
	if _, ok := r.store.GetSealed(uint32(os.Getuid()), "more"); ok {
		t.Error("it was sealed without a record")
	}
}

// Nothing of the secret is in the state directory.
func TestSealedSecretIsNotOnTheDisk(t *testing.T) {
	r := newRig(t)
	if err := r.seal("mine"); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(aSecret)) || bytes.Contains(data, []byte(base64.StdEncoding.EncodeToString([]byte(aSecret)))) {
			t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil || files < 3 {
		t.Errorf("looked at %d files: %v", files, err)
	}
}

// A user who was given the uid of a former user cannot open the former user's secrets,
// and can only delete or replace them.
func TestSecretsOfAFormerUser(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"kept", "replaced"} {
		if err := r.seal(name); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(r.dir, "state", "sealed", fmt.Sprint(os.Getuid()), name+".json")
		data, err := os.ReadFile(path)
		former := regexp.MustCompile(`"user": "[^"]*"`).ReplaceAll(data, []byte(`"user": "somebody-before"`))
		if err != nil || bytes.Equal(former, data) {
			t.Fatalf("the record names no user: %v", err)
		}
		if err := os.WriteFile(path, former, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.restart()
	for _, name := range []string{"kept", "replaced"} {
		secret, err := r.unseal(name)
		if wantKind(t, err, fault.Denied); secret != "" {
			t.Errorf("%s: the secret of the uid's former user was given out", name)
		}
	}
	if err := r.seal("replaced", replacing); err != nil {
		t.Error(err)
	}
	r.wantUnseals("replaced", "another")
	if err := r.call(agentwire.DeleteSealed, agentwire.NameParameters{Name: "kept"}, &agentwire.Empty{}); err != nil {
		t.Error(err)
	}
}

// A right that is taken away while an Unseal waits is gone when its turn comes.
func TestWaitingUnsealIsDecidedAgain(t *testing.T) {
	for name, takeAway := range map[string]func(*rig) error{
		"policy": func(r *rig) error {
			r.policy = func() (*policy.Policy, error) {
				return policy.Parse("policy.yaml", []byte("version: 1\nrules:\n- deny: [unseal]\n  anyone: true\n- allow: [all]\n  uids: [0]\n  owner: self\n"))
			}
			return r.agent.Reload(context.Background())
		},
		"secret": func(r *rig) error { return r.store.DeleteSealed(uint32(os.Getuid()), "mine") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.create("other", keys.TLSClient)
			if err := r.seal("mine"); err != nil {
				t.Fatal(err)
			}
			release := r.memory.Block()
			held, result := make(chan error, 1), make(chan error, 1)
			go func() { _, err := r.signClient("other"); held <- err }() // holds the device
			r.memory.WaitBlocked()
			go func() { _, err := r.unseal("mine"); result <- err }()
			r.waitForRecord(`"key":"mine"`, `"decision":"allow"`, `"operation":"unseal"`)
			if err := takeAway(r); err != nil {
				t.Fatal(err)
			}
			release()
			<-held
			wantKind(t, <-result, fault.Denied)
		})
	}
}

// A process that ends while the device works for it takes the secret with it.
func TestSecretForAnEndedProcessStaysHere(t *testing.T) {
	r := newRig(t)
	if err := r.seal("mine"); err != nil {
		t.Fatal(err)
	}
	conn, end := r.handedOver()
	release := r.memory.Block()
	var reply agentwire.UnsealReply
	result := make(chan error, 1)
	go func() {
		result <- asKeysError(conn.Call(context.Background(), agentwire.Unseal, agentwire.NameParameters{Name: "mine"}, &reply))
	}()
	r.memory.WaitBlocked()
	end()
	release()
	wantKind(t, <-result, fault.Denied)
	if reply.Secret != nil {
		t.Error("the secret left")
	}
}

// On a machine's agent each user has secrets of their own, not root's either, and
// not too many.
func TestUsersHaveSecretsOfTheirOwn(t *testing.T) {
	r := newRig(t, system)
	seal := func(uid uint32, name, secret string) string {
		t.Helper()
		return r.as(uid, r.socket, agentwire.Seal, agentwire.SealParameters{Name: name, Secret: []byte(secret)}).Error
	}
	unseal := func(uid uint32, name string) (string, string) {
		t.Helper()
		a := r.as(uid, r.socket, agentwire.Unseal, agentwire.NameParameters{Name: name})
		var reply agentwire.UnsealReply
		if a.Error == "" {
			if err := json.Unmarshal(a.Reply, &reply); err != nil {
				t.Fatal(err)
			}
		}
		return string(reply.Secret), a.Error
	}
	use := r.socket
	r.socket = r.listenAdmin() // where root manages what is the machine's
	if err := r.seal("root"); err != nil {
		t.Fatal(err)
	}
	r.socket = use
	for uid, secret := range map[uint32]string{alice: "alice's", bob: "bob's"} {
		if e := seal(uid, "mine", secret); e != "" {
			t.Fatal(uid, e)
		}
	}
	for uid, want := range map[uint32]string{alice: "alice's", bob: "bob's"} {
		if got, e := unseal(uid, "mine"); got != want || e != "" {
			t.Errorf("uid %d: got %q, %s", uid, got, e)
		}
		if got, e := unseal(uid, "root"); got != "" || e != agentwire.Errors().ErrorName(fault.Denied) {
			t.Errorf("uid %d and root's: got %q, %q, want denied", uid, got, e)
		}
	}
	_, err := r.unseal("mine")
	wantKind(t, err, fault.Denied)
	for i := range 29 { // 30 in a minute, the one above included
		if e := seal(alice, fmt.Sprint("s", i), "x"); e != "" {
			t.Fatalf("secret %d: %s", i, e)
		}
	}
	if e := seal(alice, "more", "x"); e != agentwire.Errors().ErrorName(fault.Busy) {
		t.Errorf("the 31st in a minute: got %q, want busy", e)
	}
	if e := seal(bob, "more", "x"); e != "" {
		t.Errorf("another user: got %q", e)
	}
}

// A user's own agent has no rate, and the store's bound all the same.
func TestSecretsAreBounded(t *testing.T) {
	r := newRig(t)
	for i := range store.MaxSealed {
		if err := r.seal(fmt.Sprint("s", i)); err != nil {
			t.Fatal(i, err)
		}
	}
	wantKind(t, r.seal("more"), fault.Denied)
}
