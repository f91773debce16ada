package broker

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/client/broker/minted"
	"holdfast/client/clienttest"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/door"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
	"holdfast/internal/varlink"
	"holdfast/test/pace"
)

// blocking is a mint whose credentials never come.
type blocking struct{ asked chan minted.Request }

func (m *blocking) Credential(ctx context.Context, r minted.Request) (brokerwire.Credential, error) {
	m.asked <- r
	<-ctx.Done()
	return brokerwire.Credential{}, ctx.Err()
}
func (*blocking) Forget(string, *uint32) {}
func (*blocking) Count(string) int       { return 0 }
func (*blocking) Close()                 {}

// inside starts a broker in this process, with the profile prod, and returns it, its
// socket and what has it take no more calls.
func inside(t *testing.T, change func(*Options)) (b *Broker, path string, stop func()) {
	t.Helper()
	agent, ca := clienttest.Start(t), clienttest.NewCA(t)
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	c := client.New(&client.Options{Socket: agent.Socket})
	t.Cleanup(func() { c.Close() })
	k, err := c.Key(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.InstallCertificate(t.Context(), "alice", [][]byte{ca.IssueFor("alice", k.Public())}); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Agent: c, State: t.TempDir(), Profiles: t.TempDir(),
		LoadPolicy: func() (*policy.Policy, error) { return policy.BrokerUserDefault(uint32(os.Getuid())), nil },
	}
	p := &profile.Profile{
		Name: "prod", Key: "alice", Modes: []string{profile.ModeToken},
		Cluster: profile.Cluster{Server: "https://api:6443", CertificateAuthorityData: string(ca.PEM)},
		Token:   profile.Token{Namespace: "n", ServiceAccount: "s"},
	}
	if err := profile.Write(o.Profiles, p); err != nil {
		t.Fatal(err)
	}
	change(&o)
	b, err = New(o)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "hf-") // socket paths have at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := door.Listen(filepath.Join(dir, "b.sock"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, s) }()
	t.Cleanup(func() {
		stop()
		b.Shutdown(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return b, s.Path(), stop
}

func dialBroker(t *testing.T, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// One user cannot take every connection.
func TestConnectionsOfOneUser(t *testing.T) {
	_, path, _ := inside(t, func(o *Options) { o.Limits.ConnectionsPerUID = 2 })
	status := func(conn net.Conn) error {
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		return varlink.NewConn(conn).Call(context.Background(), brokerwire.GetStatus, brokerwire.Empty{}, &brokerwire.GetStatusReply{})
	}
	first := dialBroker(t, path)
	if err := errors.Join(status(first), status(dialBroker(t, path))); err != nil {
		t.Fatal(err)
	}
	if err := status(dialBroker(t, path)); !errors.Is(err, varlink.ErrConnectionLost) {
		t.Errorf("a third connection: %v, want it lost", err)
	}
	first.Close()
	for deadline := time.Now().Add(30 * time.Second); status(dialBroker(t, path)) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the place of a closed connection is not free again")
		}
	}
}

// A file system that hangs, while the profiles are checked or the proxy's address is
// written, does not make a watchdog restart the broker.
func TestAliveWithoutFileSystem(t *testing.T) {
	b, _, _ := inside(t, func(*Options) {})
	b.profiles.mu.Lock()
	defer b.profiles.mu.Unlock()
	b.proxy.mu.Lock()
	defer b.proxy.mu.Unlock()
	alive := make(chan error, 1)
	go func() { alive <- b.Alive() }()
	select {
	case err := <-alive:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("no answer")
	}
}

// A call that waits for a cluster does not hold up the broker's end.
func TestCallsAreCut(t *testing.T) {
	m := &blocking{asked: make(chan minted.Request, 2)}
	b, path, stop := inside(t, func(*Options) {})
	b.issued.mint = m
	p := brokerwire.GetCredentialParameters{Profile: "prod", Mode: brokerwire.ModeToken, Cluster: &brokerwire.Cluster{Server: "https://api:6443"}, Unauthorized: true}
	left := dialBroker(t, path)
	go varlink.NewConn(left).Call(context.Background(), brokerwire.GetCredential, p, nil)
	r := <-m.asked
	if r.Holder.PID != int32(os.Getppid()) || r.Profile.Name != "prod" || r.Mode != brokerwire.ModeToken || r.Cluster == nil || !r.Unauthorized {
		t.Errorf("the mint was asked %+v", r)
	}
	left.Close()
	answered := make(chan error, 1)
	stays := dialBroker(t, path)
	go func() {
		answered <- varlink.NewConn(stays).Call(context.Background(), brokerwire.GetCredential, p, nil)
	}()
	<-m.asked
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	stop()
	if err := b.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); pace.Over(t, took, 5*time.Second) {
		t.Errorf("it took %v to end", took)
	}
	err := <-answered
	var e *varlink.Error
	if !errors.As(err, &e) || e.Name != brokerwire.Errors().ErrorName(fault.Busy) {
		t.Errorf("the caller who stayed: %v", err)
	}
}

// A change at the agent ends the answers of before, and an answer on its way.
func TestReadyKeys(t *testing.T) {
	var r readyKeys
	asked := r.version()
	r.put("laptop", asked, true)
	if !r.has("laptop") || r.has("other") {
		t.Error("the answer was not kept, or kept for another set")
	}
	r.clear()
	if r.has("laptop") {
		t.Error("a change at the agent did not end it")
	}
	r.put("laptop", asked, true)
	if r.has("laptop") {
		t.Error("an answer from before the change was kept")
	}
	r.put("laptop", r.version(), false)
	if r.has("laptop") {
		t.Error("kept while the agent is not watched")
	}
}
