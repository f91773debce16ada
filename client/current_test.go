package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// certifyFor gives a key of the stand-in a certificate that is valid from and until
// so long from now.
func certifyFor(t *testing.T, agent *clienttest.Agent, name string, from, until time.Duration) {
	t.Helper()
	agent.Change(name, func(k *agentwire.Key) {
		public, err := keys.ParsePublic(k.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		issuer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(until),
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, public, issuer)
		if err != nil {
			t.Fatal(err)
		}
		k.Chain = [][]byte{der}
	})
}

const (
	hour = time.Hour
	none = 0
)

// generation is one key of a set: when its certificate starts and ends, none at
// all when both are none.
type generation struct {
	name        string
	from, until time.Duration
}

func withSet(t *testing.T, set ...generation) (*clienttest.Agent, *client.Client) {
	t.Helper()
	agent := clienttest.Start(t)
	for _, g := range set {
		agent.AddKey(g.name, keys.TLSClient, keys.ES256)
		if g.from != none || g.until != none {
			certifyFor(t, agent, g.name, g.from, g.until)
		}
	}
	return agent, dial(t, agent.Socket)
}

func TestCurrent(t *testing.T) {
	tests := map[string]struct {
		set  []generation
		want string
	}{
		"one key":                       {[]generation{{"prod", -hour, hour}}, "prod"},
		"the newest":                    {[]generation{{"prod", -hour, 2 * hour}, {"prod.1", -hour, hour}}, "prod.1"},
		"by number, not by letter":      {[]generation{{"prod.9", -hour, hour}, {"prod.10", -hour, hour}}, "prod.10"},
		"not one without a certificate": {[]generation{{"prod", -hour, hour}, {"prod.1", none, none}}, "prod"},
		"not one that expired":          {[]generation{{"prod.1", -hour, hour}, {"prod.2", -2 * hour, -hour}}, "prod.1"},
		"not one that is yet to be":     {[]generation{{"prod", -hour, hour}, {"prod.1", hour, 2 * hour}}, "prod"},
		"not another set's":             {[]generation{{"prod", -hour, hour}, {"prod-1.3", -hour, hour}, {"pro.5", -hour, hour}}, "prod"},
	}
	for name, test := range tests {
		_, c := withSet(t, test.set...)
		k, err := c.Current(context.Background(), "prod")
		if err != nil || k.Info().Name != test.want {
			t.Errorf("%s: got %v, %v, want %s", name, k, err, test.want)
		}
	}
}

func TestCurrentNone(t *testing.T) {
	tests := map[string]struct {
		set        []generation
		want, hint string
		next       fault.Step
	}{
		"nothing":        {nil, `there is no key "prod"`, "--create", fault.EnrollNew},
		"no certificate": {[]generation{{"prod", none, none}}, "key prod has no certificate", "holdfast enroll kubernetes PROFILE --key prod", fault.Enroll},
		"expired":        {[]generation{{"prod.1", -2 * hour, -hour}, {"prod.2", none, none}}, "key prod.1 expired on 20", "holdfast enroll kubernetes PROFILE --key prod ", fault.Enroll},
		"too early":      {[]generation{{"prod", hour, 2 * hour}}, "is valid from 20", "clock", ""},
	}
	for name, test := range tests {
		_, c := withSet(t, test.set...)
		_, err := c.Current(context.Background(), "prod")
		e, ok := fault.AsError(err)
		if !ok || !strings.Contains(e.Message, test.want) || !strings.Contains(e.Hint, test.hint) || e.Next.Do != test.next {
			t.Errorf("%s: got %+v, want %q, %q and %q", name, err, test.want, test.hint, test.next)
		}
	}
	_, c := withSet(t)
	if _, err := c.Current(context.Background(), "../prod"); fault.KindOf(err) != fault.BadRequest {
		t.Errorf("no key's name: got %v, want bad-request", err)
	}
}

// A key that the agent refuses to use does not hide one that it would use.
func TestCurrentFault(t *testing.T) {
	agent, c := withSet(t, generation{"prod", -hour, hour}, generation{"prod.1", -hour, hour})
	flaw := func(k *agentwire.Key) { k.Fault = "the TPM was cleared" }
	agent.Change("prod.1", flaw)
	if k, err := c.Current(context.Background(), "prod"); err != nil || k.Info().Name != "prod" {
		t.Errorf("got %v, %v, want prod", k, err)
	}
	agent.Change("prod", flaw)
	if _, err := c.Current(context.Background(), "prod"); err == nil || !strings.Contains(err.Error(), "the TPM was cleared") {
		t.Errorf("got %v, want the fault", err)
	}
}

// On a machine's agent the caller's own keys come first, and the machine's serve
// those who have none.
func TestCurrentOwnFirst(t *testing.T) {
	agent, c := withSet(t, generation{"prod", -hour, hour}, generation{"prod.1", -hour, hour})
	agent.Change("prod.1", func(k *agentwire.Key) { k.Owner.UID = uint32(os.Getuid()) + 1 })
	if k, err := c.Current(context.Background(), "prod"); err != nil || k.Info().Name != "prod" {
		t.Errorf("got %v, %v, want the caller's own", k, err)
	}
	certifyFor(t, agent, "prod", -2*hour, -hour)
	if k, err := c.Current(context.Background(), "prod"); err != nil || k.Info().Name != "prod.1" {
		t.Errorf("got %v, %v, want the machine's", k, err)
	}
}

// A name with a number is that key alone.
func TestCurrentOneGeneration(t *testing.T) {
	_, c := withSet(t, generation{"prod", -hour, hour}, generation{"prod.1", -hour, hour}, generation{"prod.2", -hour, hour})
	if k, err := c.Current(context.Background(), "prod.1"); err != nil || k.Info().Name != "prod.1" {
		t.Errorf("got %v, %v, want prod.1", k, err)
	}
}

// The chain is whole, while a list has the leaf alone.
func TestCurrentHasTheChain(t *testing.T) {
	agent, c := withSet(t, generation{"prod", -hour, hour})
	k, err := c.Current(context.Background(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.TLSCertificate(); err != nil {
		t.Error(err)
	}
	if len(agent.Calls(agentwire.ListKeys)) != 1 || len(agent.Calls(agentwire.GetKey)) != 1 {
		t.Errorf("the agent was asked %v", agent.Calls(""))
	}
}
