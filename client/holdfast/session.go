package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"holdfast/client"
)

// timeouts holds the timeouts for an agent's status, which it sends at once, and for a
// server's verdict on the client's certificate. A server that rejects it does so within
// a round trip; one that accepts it may be silent until it receives data.
type timeouts struct {
	state   time.Duration // for an agent's status; an agent that takes longer hangs
	verdict time.Duration // before stdin is sent: an alert that meets data in flight can be lost
	quiet   time.Duration // after stdin has ended: the server may still be answering
	closing time.Duration // after our close_notify: the server has to close too
}

func usualTimeouts() timeouts {
	return timeouts{state: 5 * time.Second, verdict: time.Second, quiet: 2 * time.Second, closing: 10 * time.Second}
}

// session is one TLS connection of `tls connect`.
type session struct {
	app         *app
	raw         *counted
	conn        *tls.Conn
	key         *client.Key // nil: no client certificate
	certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	requested   bool // the server asked for a certificate
	reading     bool // the handshake is complete on this side

	mu      sync.Mutex
	took    time.Duration // of the signature
	failed  error         // of the key, as the agent gave it
	verdict sync.Once
	taken   chan struct{} // closed when the server has accepted the handshake
	ended   chan error    // receives the error that ended the reading
	heard   atomic.Int64  // when data of the server arrived last, Unix nanoseconds
}

func newSession(a *app) *session {
	return &session{app: a, taken: make(chan struct{}), ended: make(chan error, 1)}
}

// Put is called when the server sends a session ticket. With TLS 1.3 servers
// send it after they have verified the client's certificate, so it is a verdict. With
// TLS 1.2 it is a part of the handshake and proves nothing. It is not kept.
func (s *session) Put(string, *tls.ClientSessionState) {
	if s.reading {
		s.accept("it sent a session ticket")
	}
}

// Get returns no session: each connection is to show a whole handshake.
func (s *session) Get(string) (*tls.ClientSessionState, bool) { return nil, false }

func (s *session) noCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	s.requested = true
	return &tls.Certificate{}, nil
}

// keyCertificate returns the key's certificate.
func (s *session) keyCertificate(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	s.requested = true
	cert, err := s.certificate(r)
	if err != nil {
		s.note(0, err)
	}
	return cert, err
}

// note stores the time and the error of the signature.
func (s *session) note(took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took, s.failed = took, err
}

func (s *session) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// counted counts the bytes that arrive on a connection.
type counted struct {
	net.Conn
	bytes atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}

// report prints the handshake.
func (s *session) report(name string) error {
	state := s.conn.ConnectionState()
	rows := [][]string{
		{"connected", s.conn.RemoteAddr().String()},
		{"version", tls.VersionName(state.Version)},
		{"cipher", tls.CipherSuiteName(state.CipherSuite)},
		{"server", name + ", verified"},
	}
	for i, c := range state.VerifiedChains[0] {
		rows = append(rows, []string{fmt.Sprintf("chain %d", i), fmt.Sprintf("%s, until %s", c.Subject, when(c.NotAfter))})
	}
	rows = append(rows, s.own()...)
	return table(s.app.stderr, rows...)
}

// own describes the client's side of the handshake.
func (s *session) own() [][]string {
	switch {
	case !s.requested:
		return [][]string{{"client", "the server did not ask for a certificate"}}
	case s.key == nil:
		return [][]string{{"client", "no certificate, which the server asked for"}}
	}
	cert, err := s.key.TLSCertificate()
	if err != nil {
		return nil // it was checked before the handshake
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return [][]string{
		{"client", fmt.Sprintf("%s, with key %s (%s)", cert.Leaf.Subject, s.key.Info().Name, algorithmOf(s.key.Info()))},
		{"signature", fmt.Sprintf("%.1f ms", float64(s.took.Microseconds())/1000)},
	}
}

// accept notes that the server has accepted the handshake, and prints how that is
// known.
func (s *session) accept(why string) {
	s.verdict.Do(func() {
		fmt.Fprintf(s.app.stderr, "accepted: %s\n", why)
		close(s.taken)
	})
}

func (s *session) accepted() bool {
	select {
	case <-s.taken:
		return true
	default:
		return false
	}
}

// carry learns the server's verdict and copies in both directions.
func (s *session) carry(ctx context.Context) error {
	if s.key != nil && !s.requested {
		return failf("leave --key out to connect without one", "the server did not ask for a client certificate")
	}
	// With TLS 1.2, the server sends its Finished after it has verified the client.
	if !s.requested || s.conn.ConnectionState().Version < tls.VersionTLS13 {
		s.accept("the handshake is complete")
	}
	before := s.raw.bytes.Load()
	s.reading = true
	go s.receive()
	select {
	case <-s.taken:
	case <-time.After(s.app.timeouts.verdict):
	case err := <-s.ended:
		return s.judge(ctx, err, before)
	}
	sent := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(s.conn, s.app.stdin) // a broken connection is seen by receive, a broken stdin is its end
		sent <- n
	}()
	select {
	case err := <-s.ended:
		return s.judge(ctx, err, before)
	case n := <-sent:
		return s.judge(ctx, s.finish(n > 0), before)
	}
}

// receive copies the server's data to stdout until the connection ends.
func (s *session) receive() {
	buffer := make([]byte, 16<<10)
	for {
		n, err := s.conn.Read(buffer)
		if n > 0 {
			s.heard.Store(time.Now().UnixNano())
			s.accept("it sent data")
			if _, writeErr := s.app.stdout.Write(buffer[:n]); writeErr != nil {
				err = fmt.Errorf("stdout: %w", writeErr)
			}
		}
		if err != nil {
			s.ended <- err
			return
		}
	}
}

// finish closes the sending side once stdin has ended, and returns what ended the
// reading. A server that was sent data gets time to answer first: some abandon a
// request when its sender closes.
func (s *session) finish(answerDue bool) error {
	quiet, timeouts := time.Now(), s.app.timeouts
	for answerDue && time.Since(quiet) < timeouts.quiet {
		select {
		case err := <-s.ended:
			return err
		case <-time.After(timeouts.quiet - time.Since(quiet)):
			if heard := time.Unix(0, s.heard.Load()); heard.After(quiet) {
				quiet = heard
			}
		}
	}
	s.conn.CloseWrite() // when it fails, receive says why
	select {
	case err := <-s.ended:
		return err
	case <-time.After(timeouts.closing):
		return errSilent
	}
}

var errSilent = errors.New("the server does not close the connection")

// judge returns the result of the command from the error that ended the connection;
// before is the number of bytes that had arrived when the handshake was complete.
func (s *session) judge(ctx context.Context, err error, before int64) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case isAlert(err):
		return s.refusal(err)
	case s.accepted() && (err == io.EOF || err == errSilent || errors.Is(err, syscall.ECONNRESET)):
		return nil
	case err == io.EOF && s.raw.bytes.Load() > before:
		// crypto/tls reports a close_notify and a bare end alike, but something
		// arrived, and it was neither data nor a ticket nor another alert.
		s.accept("it closed the connection in good order")
		return nil
	case err == io.EOF, err == errSilent, errors.Is(err, syscall.ECONNRESET):
		return failf("the server's log says why",
			"the server did not say whether it takes the client certificate, and ended the connection")
	}
	return failf("", "connection: %w", err)
}
