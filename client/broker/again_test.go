package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/client/broker/minted"
	"holdfast/client/broker/ticket"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
	"holdfast/internal/varlink"
)

// slow is a mint that takes its time.
type slow struct {
	blocking
	release chan struct{}
	forgot  chan string
}

func (m *slow) Credential(_ context.Context, r minted.Request) (brokerwire.Credential, error) {
	m.asked <- r
	<-m.release
	return brokerwire.Credential{Token: "hush", ExpirationTimestamp: time.Now().Add(time.Hour)}, nil
}

func (m *slow) Forget(profile string, _ *uint32) { m.forgot <- profile }

// A decision from before a long wait is made again after it.
func TestWaitingCallerIsDecidedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		change func(b *Broker, rule *string) error
		want   fault.Kind
		forgot string
	}{
		"policy": {func(b *Broker, rule *string) error {
			*rule = "version: 1\nrules:\n- {deny: [credentials], anyone: true}\n"
			return b.Reload(t.Context())
		}, fault.Denied, ""},
		"profile": {func(b *Broker, _ *string) error {
			p, _ := b.profiles.get("prod")
			other := *p
			other.Cluster.Server = "https://other:6443"
			return profile.Write(b.Profiles, &other)
		}, fault.Busy, "prod"},
		"profile gone": {func(b *Broker, _ *string) error { return os.Remove(filepath.Join(b.Profiles, "prod.yaml")) }, fault.Denied, "prod"},
	} {
		t.Run(name, func(t *testing.T) {
			rule := fmt.Sprintf("version: 1\nrules:\n- {allow: [credentials], uids: [%d], profiles: ['*']}\n", os.Getuid())
			b, path, _ := inside(t, func(o *Options) {
				o.LoadPolicy = func() (*policy.Policy, error) {
					file := filepath.Join(t.TempDir(), "p.yaml")
					if err := os.WriteFile(file, []byte(rule), 0o600); err != nil {
						return nil, err
					}
					return policy.ParseBrokerFile(file)
				}
			})
			m := &slow{blocking{make(chan minted.Request, 1)}, make(chan struct{}), make(chan string, 9)}
			b.issued.mint = m
			answered := make(chan error, 1)
			conn := dialBroker(t, path)
			go func() {
				p := brokerwire.GetCredentialParameters{Profile: "prod", Mode: brokerwire.ModeToken}
				answered <- varlink.NewConn(conn).Call(context.Background(), brokerwire.GetCredential, p, nil)
			}()
			<-m.asked
			if err := test.change(b, &rule); err != nil {
				t.Fatal(err)
			}
			close(m.release)
			err := <-answered
			var e *varlink.Error
			if !errors.As(err, &e) || e.Name != brokerwire.Errors().ErrorName(test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			select {
			case got := <-m.forgot:
				if got != test.forgot {
					t.Errorf("what was minted of %q was forgotten, want of %q", got, test.forgot)
				}
			default:
				t.Error("what was minted is still remembered")
			}
		})
	}
}

// Identities of processes that ended are removed before their tickets would end.
func TestIdentitiesAreSwept(t *testing.T) {
	var h identities
	dead := func(p ticket.Process) bool { return p.PID%2 == 0 }
	for i := range int32(maxIdentities) {
		h.put(ticket.Process{PID: i}, peer.Identity{}, time.Now().Add(time.Hour), dead)
	}
	h.swept = time.Now().Add(-2 * sweepSoon)
	h.put(ticket.Process{PID: maxIdentities}, peer.Identity{}, time.Now().Add(time.Hour), dead)
	if len(h.byProcess) != maxIdentities/2+1 {
		t.Errorf("%d are remembered, want %d", len(h.byProcess), maxIdentities/2+1)
	}
}
