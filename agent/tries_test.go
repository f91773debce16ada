package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/agent/audit"
	"holdfast/agent/prompt"
	"holdfast/agent/store"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/keys/keystest"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
	"holdfast/test/pace"
)

// These tests run thousands of scripts in which people and programs use a PIN, against
// the agent without its socket, and compare the PINs that the device saw with a model.

const (
	scriptsAtATime = 50 // with one agent
	goodPIN        = "good-pin"
	badPIN         = "bad-pin!"
)

// pinDevice notes every PIN that it sees.
type pinDevice struct {
	*keystest.Memory
	mu   sync.Mutex
	seen []string
}

// Unlock implements keys.Backend, without the Memory's own limit.
func (d *pinDevice) Unlock(ctx context.Context, m keys.Material, pin []byte, until time.Time) error {
	d.mu.Lock()
	d.seen = append(d.seen, string(pin))
	d.mu.Unlock()
	if string(pin) != goodPIN {
		return &fault.Error{Kind: fault.PINRequired, Message: "wrong PIN"}
	}
	return d.Memory.Unlock(ctx, m, pin, until)
}

// typist answers prompts from a script: a PIN, or how there is none.
type typist struct {
	mu      sync.Mutex
	script  []string
	entered []string
	left    bool               // the request left, and may have withdrawn a prompt that was answered
	leave   context.CancelFunc // ends the request
}

func (p *typist) next() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.script) == 0 {
		return "close"
	}
	s := p.script[0]
	p.script = p.script[1:]
	return s
}

// PIN implements Person.
func (p *typist) PIN(ctx context.Context, _ prompt.Subject) ([]byte, error) {
	switch s := p.next(); s {
	case "close":
		return nil, prompt.ErrClosed
	case "late":
		return nil, prompt.ErrLate
	case "unreachable":
		return nil, errors.New("no terminal")
	case "leave":
		p.mu.Lock()
		p.left = true
		p.mu.Unlock()
		p.leave()
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.entered = append(p.entered, s)
		return []byte(s), nil
	}
}

// Confirm implements Person.
func (p *typist) Confirm(context.Context, prompt.Subject) error { return nil }

// Touch implements Person.
func (p *typist) Touch(prompt.Subject) func() { return func() {} }

// scripted is an agent that scripts run against, each as a uid of its own.
type scripted struct {
	t      *testing.T
	agent  *Agent
	device *pinDevice
	typist *typist
	peer   *peer.Peer
}

func newScripted(t *testing.T) *scripted {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "agent-test-") // where writing costs nothing
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{t: t, device: &pinDevice{Memory: keystest.NewMemory()}, typist: &typist{}, peer: self(t)}
	records, err1 := store.Open(filepath.Join(dir, "state"))
	log, err2 := audit.Open(filepath.Join(dir, "audit"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	s.agent, err = New(Options{
		Store: records, Audit: log, Backends: []keys.Backend{s.device}, Person: s.typist, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		LoadPolicy: func() (*policy.Policy, error) { return policy.SystemDefault(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.agent.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		log.Close()
		records.Close()
		os.RemoveAll(dir)
	})
	return s
}

// self identifies this process.
func self(t *testing.T) *peer.Peer {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	p, err := new(peer.Identifier).FromConn(there.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// begin makes uid the caller, with a key.
func (s *scripted) begin(uid uint32) store.Record {
	s.t.Helper()
	s.peer.UID, s.peer.User = uid, ""
	m, err := s.device.Create(s.t.Context(), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, PIN: []byte(goodPIN)})
	if err != nil {
		s.t.Fatal(err)
	}
	rec := store.Record{
		Name: "alice", Owner: store.Owner{UID: uid}, Purpose: keys.TLSClient, Algorithm: keys.ES256, Created: time.Now().UTC(), Material: m,
	}
	if err := s.agent.Store.Create(rec); err != nil {
		s.t.Fatal(err)
	}
	return rec
}

func (s *scripted) request() *request {
	ctx := context.WithValue(context.Background(), connectionKey{}, &connection{peer: s.peer})
	return s.agent.newRequest(ctx)
}

var scriptMessage = append([]byte(strings.Repeat(" ", 64)+"TLS 1.3, client CertificateVerify\x00"), bytes.Repeat([]byte{7}, 32)...)

// sign has n requests want a signature at once.
func (s *scripted) sign(n int) {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	s.typist.leave = leave
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			s.request().signTLSClient(ctx, &agentwire.SignTLSClientParameters{Key: "alice", Scheme: string(keys.ECDSAP256SHA256), Message: scriptMessage})
		})
	}
	all.Wait()
}

// triesModel says which PINs a device may see.
type triesModel struct{ ofKey, ofUID int }

// sees notes that the device saw a PIN.
func (m *triesModel) sees(pin string) {
	if pin == goodPIN {
		m.ofKey = 0
		return
	}
	m.ofKey++
	m.ofUID++
}

// script runs one script, and returns what was typed where, for the model.
func (s *scripted) script(rng *rand.Rand, rec store.Record) (typed []string) {
	answers := []string{goodPIN, badPIN, badPIN, "close", "late", "unreachable", "leave", "x"}
	for range 1 + rng.IntN(8) {
		s.typist.script, s.typist.entered = nil, nil
		for range rng.IntN(5) {
			s.typist.script = append(s.typist.script, answers[rng.IntN(len(answers))])
		}
		clear(s.agent.prompts.closed) // nothing runs now, and the wait after a closed prompt would hide the rest
		switch rng.IntN(6) {
		case 0:
			pin := []string{goodPIN, badPIN}[rng.IntN(2)]
			s.typist.entered = []string{pin}
			s.request().unlockKey(context.Background(), &agentwire.UnlockKeyParameters{Name: "alice", PIN: []byte(pin)})
		case 1:
			ctx, leave := context.WithCancel(context.Background())
			s.typist.leave = leave
			s.request().unlockKey(ctx, &agentwire.UnlockKeyParameters{Name: "alice"})
			leave()
		case 2:
			s.agent.lock(rec)
		case 3:
			s.device.Lock(nil) // the device forgets
			s.sign(1)
		default:
			s.sign(1 + rng.IntN(3))
		}
		s.agent.prompts.all.Wait()
		typed = append(typed, s.typist.entered...)
	}
	return typed
}

// wantSeen returns what is wrong with the PINs that a device saw: none but those that
// were typed, each once and in order, none beyond what the model allows, and, where
// nobody left, none missing.
func wantSeen(seen, typed []string, left bool) error {
	var m triesModel
	rest := seen
	for _, pin := range typed {
		due := keys.CheckPIN([]byte(pin)) == nil && m.ofKey < store.MaxPINTries && m.ofUID < store.MaxPINTriesPerUID
		switch {
		case due && len(rest) > 0 && rest[0] == pin:
			m.sees(pin)
			rest = rest[1:]
		case due && !left:
			return fmt.Errorf("of %q the device saw %q, one is missing", typed, seen)
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("of %q the device saw %q, some that it must not", typed, seen)
	}
	return nil
}

// TestNoTryIsSpentButTheUsersOwn: the device sees each PIN that a user typed once,
// in order, and none when the hour's tries are used up.
func TestNoTryIsSpentButTheUsersOwn(t *testing.T) {
	seen, wrong, exact := 0, 0, 0
	scripts := pace.Share(500, 10_000)
	for chunk := range scripts / scriptsAtATime {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			s := newScripted(t)
			for i := range scriptsAtATime {
				seed := uint64(chunk*scriptsAtATime + i)
				rec := s.begin(uint32(1000 + i))
				s.device.seen = nil
				s.typist.left = false
				typed := s.script(rand.New(rand.NewPCG(seed, 4)), rec)
				if err := wantSeen(s.device.seen, typed, s.typist.left); err != nil {
					t.Fatalf("script %d: %v", seed, err)
				}
				seen += len(s.device.seen)
				wrong += strings.Count(strings.Join(s.device.seen, " "), badPIN)
				if !s.typist.left {
					exact++
				}
				s.device.Lock(nil)
			}
		})
	}
	if seen < scripts || wrong < scripts/2 || exact < scripts/4 {
		t.Errorf("the scripts had the device see %d PINs, %d of them wrong, and %d scripts went to their end: too few to say anything", seen, wrong, exact)
	}
	t.Logf("%d scripts, %d PINs, %d wrong, %d scripts without anybody leaving", scripts, seen, wrong, exact)
}
