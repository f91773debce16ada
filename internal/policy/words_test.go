package policy

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"holdfast/internal/peer"
)

// The words are in policy files and in scripts: they may be added to, not changed.
func TestOperationsAreStable(t *testing.T) {
	if got, want := joined(BrokerOperations()), "proxy, certificate, token, status"; got != want {
		t.Errorf("of a broker: got %s, want %s", got, want)
	}
	want := "list create delete export adopt bind install-certificate " +
		"sign-tls-client sign-tls-server sign-certificate-request sign-service-account-token sign-client-assertion sign-aws-request " +
		"unlock seal unseal list-cards manage-cards status audit"
	if got := joined(Operations()); got != strings.ReplaceAll(want, " ", ", ") {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOperationsOf(t *testing.T) {
	cases := []struct {
		word  string
		want  operationSet
		known bool
	}{
		{"all", setOf(Operations()...), true},
		{"use", setOf(SignTLSClient, SignTLSServer, SignCertificateRequest, SignServiceAccountToken, SignClientAssertion, SignAWSRequest, Unlock), true},
		{"manage", setOf(List, Create, Delete, Export, Adopt, Bind, InstallCertificate, Seal), true},
		{"audit", setOf(Audit), true},
		{"unseal", setOf(Unseal), true},
		{"", 0, false},
		{"sign", 0, false},
		{"sign-*", 0, false},
		{"All", 0, false},
		{" list", 0, false},
		{"proxy", 0, false},
		{"credentials", 0, false},
	}
	for _, c := range cases {
		if got, known := agentDialect().operationsOf(c.word); got != c.want || known != c.known {
			t.Errorf("%q: got %b, %t, want %b, %t", c.word, got, known, c.want, c.known)
		}
	}
}

func TestPatterns(t *testing.T) {
	cases := []struct {
		word      string
		matches   []string
		different []string
	}{
		{"web", []string{"web"}, []string{"webs", "we", "", "web-shop"}},
		{`"web*"`, []string{"web", "webs", "web-shop"}, []string{"we", "", "my-web"}},
		{`"web-*"`, []string{"web-shop", "web-"}, []string{"web", "webs"}},
		{`"*"`, []string{"web", "a", "x_y-z"}, nil},
	}
	for _, c := range cases {
		p := parse(t, "version: 1\nrules: [{allow: [use], uids: [1], keys: ["+c.word+"], owner: any}]").rules[0].keys[0]
		for _, set := range c.matches {
			if !p.matches(set) {
				t.Errorf("%s does not match %q", c.word, set)
			}
		}
		for _, set := range c.different {
			if p.matches(set) {
				t.Errorf("%s matches %q", c.word, set)
			}
		}
	}
}

// Parse knows the users and groups of this machine.
func TestParseAsksTheMachine(t *testing.T) {
	p, err := Parse("policy.yaml", []byte("version: 1\nrules: [{allow: [status], users: [root], groups: [root]}]"))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Decide(Query{Peer: peer.Identity{User: "root"}, Operation: Status}); !got.Allowed {
		t.Errorf("got %+v, want root allowed", got)
	}
	_, err = Parse("policy.yaml", []byte("version: 1\nrules: [{allow: [status], users: [no-such-user]}]"))
	if want := `policy.yaml:2: there is no user "no-such-user"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestParseFileBoundsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(strings.Repeat("# long\n", MaxFile/7+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseFile(path); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("got %v, want an error about the length", err)
	}
	if _, err := ParseFile(filepath.Dir(path)); err == nil {
		t.Error("a directory: got no error")
	}
}

// A policy does not change: decisions run side by side under the race detector.
func TestDecideIsSafeForConcurrentUse(t *testing.T) {
	p := parse(t, matrixPolicy)
	q := Query{Peer: peer.Identity{UID: 1000, User: "alice"}, Operation: SignTLSClient, Key: "laptop", Owner: 1000, OwnerUser: "alice"}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 100 {
				if d := p.Decide(q); !d.Allowed || !p.Admits(q.Peer, false).Allowed {
					t.Errorf("got %+v", d)
				}
			}
		})
	}
	group.Wait()
}
