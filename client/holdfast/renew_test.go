package main

import (
	"crypto/x509/pkix"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/client/enroll"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/apiserver"
)

// enroll makes a key and a profile of its name, whose certificate is valid from
// and until so long from now.
func (c *cluster) enroll(t *testing.T, name string, from, until time.Duration) {
	t.Helper()
	if c.run("key", "show", name).code != 0 {
		c.agent.AddKey(name, keys.TLSClient, keys.ES256)
	}
	c.certify(t, name, from, until)
	p := &profile.Profile{
		Name: name, Key: keys.SetOf(name), Cluster: profile.Cluster{Server: c.URL, CertificateAuthorityData: string(c.CA)},
		Renewal: profile.Renewal{SignerName: enroll.PeopleSigner},
	}
	if !strings.Contains(name, ".") {
		check(t, profile.Write(profile.Directory(false), p))
	}
}

func (c *cluster) certify(t *testing.T, name string, from, until time.Duration) {
	t.Helper()
	c.agent.Change(name, func(k *agentwire.Key) {
		public, err := keys.ParsePublic(k.PublicKey)
		check(t, err)
		subject := pkix.Name{CommonName: "carol", Organization: []string{"dev", "ops"}}
		k.Chain = [][]byte{c.Certificate(subject, public, time.Now().Add(from), time.Now().Add(until))}
	})
}

func (c *cluster) change(t *testing.T, name string, change func(*profile.Profile)) {
	t.Helper()
	p := c.profile(t, name)
	change(p)
	check(t, profile.Write(profile.Directory(false), p))
}

func TestCertificateRenew(t *testing.T) {
	c := withCluster(t)
	c.enroll(t, "prod", -time.Hour, time.Hour)
	before := leafOf(t, c.command, "prod")
	c.run("certificate", "renew", "prod").want(t, 0, "prod: key prod renewed until ", "next renewal")
	after := leafOf(t, c.command, "prod")
	if after.Equal(before) || string(after.RawSubject) != string(before.RawSubject) || string(after.RawSubjectPublicKeyInfo) != string(before.RawSubjectPublicKeyInfo) {
		t.Errorf("got a certificate of %s", after.Subject)
	}
	for _, r := range c.Requests() {
		if !strings.HasSuffix(r, " by carol") {
			t.Errorf("%s: not signed in by the key", r)
		}
	}
	if signer, _, _ := c.Asked(c.RequestNames()[0]); signer != enroll.PeopleSigner {
		t.Errorf("asked %s", signer)
	}
}

// A new key overlaps with the old one, and looks like it.
func TestRenewNewKey(t *testing.T) {
	c := withCluster(t)
	c.enroll(t, "prod", -time.Hour, time.Hour)
	c.agent.Change("prod", func(k *agentwire.Key) {
		k.Persistent, k.Servers = true, []agentwire.Server{{Address: "api:6443", CA: "pem"}}
	})
	before := leafOf(t, c.command, "prod")
	var state renewalState
	check(t, json.Unmarshal([]byte(c.run("certificate", "renew", "prod", "--new-key", "--json").stdout), &state))
	if state.Key != "prod.1" || !state.Renewed || state.NotAfter == nil || !state.Planned.Before(*state.NotAfter) {
		t.Errorf("got %+v", state)
	}
	if after := leafOf(t, c.command, "prod"); !after.Equal(before) {
		t.Error("the old key lost its certificate")
	}
	var k agentwire.Key
	check(t, json.Unmarshal([]byte(c.run("key", "show", "prod.1", "--json").stdout), &k))
	if !k.Persistent || len(k.Servers) != 1 || k.Purpose != "tls-client" {
		t.Errorf("got %+v, want one like the old", k)
	}
	c.run("certificate", "renew", "prod", "--new-key").want(t, 0, "key prod.2 renewed")
}

// A key that a failed renewal has left behind is used by the next.
func TestRenewNewKeyAgain(t *testing.T) {
	c := withCluster(t)
	c.enroll(t, "prod", -time.Hour, time.Hour)
	c.Change(func(to *apiserver.Conduct) { to.Decision = apiserver.Deny })
	c.run("certificate", "renew", "prod", "--new-key").want(t, 1, "was denied")
	c.Change(func(to *apiserver.Conduct) { to.Decision = apiserver.Issue })
	c.run("certificate", "renew", "prod", "--new-key").want(t, 0, "key prod.1 renewed")
	if n := len(c.agent.Calls(agentwire.CreateKey)); n != 1 {
		t.Errorf("%d keys were made", n)
	}
}

func TestRenewRefusals(t *testing.T) {
	c := withCluster(t)
	c.run("certificate", "renew", "prod").want(t, 1, "no profile in", "holdfast enroll kubernetes PROFILE --key prod")
	c.enroll(t, "prod", -2*time.Hour, -time.Hour)
	c.run("certificate", "renew", "prod").want(t, 1, "key prod expired on 20", "hint: holdfast enroll kubernetes prod --key prod --context CONTEXT gets another")
	c.enroll(t, "prod", -time.Hour, time.Hour)
	c.agent.Fail(agentwire.SignTLSClient, &fault.Error{Kind: fault.PINRequired, Message: "key prod wants its PIN", Next: fault.Next{Do: fault.Unlock}})
	c.run("certificate", "renew", "prod").want(t, 5, "wants its PIN", "holdfast unlock prod")
	c.agent.Fail(agentwire.SignTLSClient, nil)
	c.Change(func(to *apiserver.Conduct) { to.Revoked = true })
	before := leafOf(t, c.command, "prod")
	c.run("certificate", "renew", "prod").want(t, 1, "Unauthorized")
	if !leafOf(t, c.command, "prod").Equal(before) {
		t.Error("the certificate was replaced")
	}
	c.run("renew").want(t, 2, "--due is missing", "--due")
	c.agent.Change("prod", func(k *agentwire.Key) { k.PIN = true })
	c.run("certificate", "renew", "prod", "--new-key").want(t, 5, "has a PIN")
}

// A key's name stands for its profile where that is clear.
func TestRenewByKey(t *testing.T) {
	c := withCluster(t)
	c.enroll(t, "alice", -time.Hour, time.Hour)
	p := c.profile(t, "alice")
	check(t, profile.Remove(profile.Directory(false), "alice"))
	p.Name = "prod"
	check(t, profile.Write(profile.Directory(false), p))
	c.run("certificate", "renew", "alice").want(t, 0, "prod: key alice renewed")
	p.Name = "dev"
	check(t, profile.Write(profile.Directory(false), p))
	c.run("certificate", "renew", "alice").want(t, 2, "is in several profiles", "dev, prod")
}

// Due certificates are renewed, and without one there is no output.
func TestRenewDue(t *testing.T) {
	c := withCluster(t)
	command{socket: "/nowhere"}.run("renew", "--due").silent(t) // there is nothing to ask an agent about
	c.enroll(t, "early", -69*time.Minute, 31*time.Minute)
	c.enroll(t, "other", -99*time.Minute, time.Minute) // nobody's to renew
	c.change(t, "other", func(p *profile.Profile) { p.Renewal.SignerName = "" })
	c.run("renew", "--due").silent(t)
	if len(c.Requests()) != 0 {
		t.Errorf("the cluster was asked %q", c.Requests())
	}
	c.enroll(t, "late", -71*time.Minute, 29*time.Minute)
	c.enroll(t, "half", -51*time.Minute, 49*time.Minute)
	c.change(t, "half", func(p *profile.Profile) { p.Renewal.Fraction = 0.5 })
	got := c.run("renew", "--due")
	got.want(t, 0, "half: key half renewed", "late: key late renewed")
	if strings.Contains(got.stdout, "early") || strings.Contains(got.stdout, "other") || len(c.RequestNames()) != 2 {
		t.Errorf("got %q and %q", got.stdout, c.RequestNames())
	}
	c.run("renew", "--due").silent(t)
}

// silent fails the test unless a command was done without a word.
func (r result) silent(t *testing.T) {
	t.Helper()
	if r.code != 0 || r.stdout+r.stderr != "" {
		t.Errorf("got %+v, want silence", r)
	}
}

// A profile that cannot be read, and an agent that is not there, are failures.
func TestRenewDueCannot(t *testing.T) {
	c := withCluster(t)
	c.enroll(t, "late", -71*time.Minute, 29*time.Minute)
	check(t, os.WriteFile(filepath.Join(profile.Directory(false), "bad.yaml"), []byte("keys: x\n"), 0o600))
	got := c.run("renew", "--due")
	got.want(t, 1, "profile bad: ", "bad.yaml:1")
	if !strings.Contains(got.stdout, "late: key late renewed") {
		t.Errorf("got %q", got.stdout)
	}
	command{socket: "/nowhere"}.run("renew", "--due").want(t, 3, "/nowhere")
}

// One that fails does not keep the others from their renewal.
func TestRenewDueFailures(t *testing.T) {
	c := withCluster(t)
	c.enroll(t, "expired", -2*time.Hour, -time.Hour)
	c.enroll(t, "late", -71*time.Minute, 29*time.Minute)
	c.enroll(t, "gone", -71*time.Minute, 29*time.Minute)
	c.change(t, "gone", func(p *profile.Profile) { p.Cluster.Server = "https://127.0.0.1:1" })
	got := c.run("renew", "--due")
	got.want(t, 1, "expired: the certificate of key expired expired on", "holdfast enroll kubernetes expired", "gone: ")
	if !strings.Contains(got.stdout, "late: key late renewed") || strings.Count(got.stderr, "\n") != 2 {
		t.Errorf("got %+v, want a line for each", got)
	}
	var states []renewalState
	check(t, json.Unmarshal([]byte(c.run("renew", "--due", "--json").stdout), &states))
	if len(states) != 3 || states[0].Error == "" || states[1].Error == "" || states[2].Error != "" || states[2].Planned == nil {
		t.Errorf("got %+v", states)
	}
}

// With --within, a renewal lands at its planned moment: within 1% of the lifetime.
func TestRenewWithin(t *testing.T) {
	c := withCluster(t)
	const lifetime = time.Hour
	c.enroll(t, "prod", -lifetime*7/10+5*time.Second, lifetime*3/10+5*time.Second)
	c.change(t, "prod", func(p *profile.Profile) { p.Renewal.Lifetime = lifetime })
	leaf := leafOf(t, c.command, "prod")
	planned := leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) * 7 / 10)
	c.run("renew", "--due", "--within", "1s").silent(t)
	c.run("renew", "--due", "--within", "1m").want(t, 0, "key prod renewed")
	got := leafOf(t, c.command, "prod")
	if got.Equal(leaf) {
		t.Fatal("it was not renewed")
	}
	late := got.NotBefore.Sub(planned) // a certificate's times are whole seconds
	if late < -time.Second || late > lifetime/100 {
		t.Errorf("it was renewed %s after its moment", late)
	}
}

// One that waits for its approval keeps no other from its moment.
func TestRenewDueTogether(t *testing.T) {
	c := withCluster(t)
	c.enroll(t, "held", -71*time.Minute, 29*time.Minute)
	c.enroll(t, "prod", -42*time.Minute+5*time.Second, 18*time.Minute+5*time.Second)
	c.Change(func(to *apiserver.Conduct) { to.Decision = apiserver.Hold })
	for len(c.RequestNames()) == 0 { // a slow machine has to try again
		c.run("renew", "--due", "--timeout", "300ms").want(t, 1, "held: ") // it waits from now on
	}
	held := c.RequestNames()[0]
	c.Change(func(to *apiserver.Conduct) { to.Decision = apiserver.Issue })
	approved := make(chan bool, 1)
	go func() { // approves what is held once the other has been asked for
		for deadline := time.Now().Add(30 * time.Second); len(c.RequestNames()) < 2 && time.Now().Before(deadline); {
			<-time.After(20 * time.Millisecond)
		}
		approved <- len(c.RequestNames()) == 2
		c.Decide(held, apiserver.Issue)
	}()
	got := c.run("renew", "--due", "--within", "20s", "--timeout", "15s")
	if !<-approved {
		t.Error("the other was not asked for at its moment")
	}
	got.want(t, 0, "prod: key prod renewed", "held: key held renewed")
}

// A certificate that is due as soon as it is issued is not renewed without end.
func TestRenewDueRests(t *testing.T) {
	c := withCluster(t)
	c.Change(func(to *apiserver.Conduct) { to.Lifetime, to.Skew = time.Hour, -50*time.Minute })
	c.enroll(t, "prod", -71*time.Minute, 29*time.Minute)
	c.run("renew", "--due", "--within", "1s").want(t, 0, "key prod renewed")
	if n := len(c.RequestNames()); n != 1 {
		t.Errorf("%d certificates were asked for", n)
	}
}

// A renewal that waits for its approval is asked for once, however often the
// timer runs; one that was denied stays denied, until a user tries again.
func TestRenewDueAsksOnce(t *testing.T) {
	c := withCluster(t)
	c.enroll(t, "prod", -71*time.Minute, 29*time.Minute)
	c.Change(func(to *apiserver.Conduct) { to.Decision = apiserver.Hold })
	for range 2 {
		c.run("renew", "--due", "--timeout", "2s").want(t, 1, "is not approved yet")
	}
	if n := len(c.RequestNames()); n != 1 {
		t.Errorf("%d requests for one renewal", n)
	}
	c.Decide(c.RequestNames()[0], apiserver.Issue)
	c.run("renew", "--due").want(t, 0, "key prod renewed")

	c.certify(t, "prod", -71*time.Minute, 29*time.Minute)
	c.Change(func(to *apiserver.Conduct) { to.Decision = apiserver.Deny })
	for range 2 {
		c.run("renew", "--due").want(t, 1, "was denied")
	}
	if n := len(c.RequestNames()); n != 2 {
		t.Errorf("%d requests, want one more", n)
	}
	c.Change(func(to *apiserver.Conduct) { to.Decision = apiserver.Issue })
	c.run("certificate", "renew", "prod").want(t, 0, "key prod renewed")
}

// Jitter is the same each time and can be switched off.
func TestRenewJitter(t *testing.T) {
	c := withCluster(t)
	c.enroll(t, "prod", -50*time.Minute, 50*time.Minute)
	planned := func(args ...string) time.Time {
		var states []renewalState
		check(t, json.Unmarshal([]byte(c.run(append([]string{"renew", "--due", "--json"}, args...)...).stdout), &states))
		return *states[0].Planned
	}
	exact := planned()
	c.change(t, "prod", func(p *profile.Profile) { p.Renewal.Jitter = 0.1 })
	jittered := planned()
	if earlier := exact.Sub(jittered); earlier <= 0 || earlier > 10*time.Minute || !planned().Equal(jittered) {
		t.Errorf("%s earlier, then %s", earlier, exact.Sub(planned()))
	}
	if !planned("--no-jitter").Equal(exact) {
		t.Error("--no-jitter does not switch it off")
	}
}

func TestPrune(t *testing.T) {
	c := withCluster(t)
	c.enroll(t, "prod", -47*time.Hour, -25*time.Hour)
	c.enroll(t, "prod.1", -47*time.Hour, -23*time.Hour)
	c.enroll(t, "prod.2", -time.Hour, time.Hour)
	c.agent.AddKey("prod.3", keys.TLSClient, keys.ES256)
	c.enroll(t, "alone", -47*time.Hour, -25*time.Hour)
	c.run("renew", "--due")
	if n := len(c.agent.Calls(agentwire.DeleteKey)); n != 0 {
		t.Fatalf("%d keys were deleted without --prune", n)
	}
	c.run("renew", "--due", "--prune")
	var deleted []string
	for _, call := range c.agent.Calls(agentwire.DeleteKey) {
		var p agentwire.NameParameters
		check(t, json.Unmarshal(call.Parameters, &p))
		deleted = append(deleted, p.Name)
	}
	if len(deleted) != 1 || deleted[0] != "prod" {
		t.Errorf("deleted %q, want prod alone", deleted)
	}
}
