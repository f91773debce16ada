package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// connectOptions holds the options of `tls connect`.
type connectOptions struct {
	key, ca, serverName string
}

// Bounds of `tls connect`. A handshake may wait for a user at the device.
const (
	dialTime      = 15 * time.Second
	handshakeTime = 90 * time.Second
)

func (a *app) tlsCommands() *cobra.Command {
	var o connectOptions
	cmd := &cobra.Command{
		Use: "connect HOST:PORT", Short: "make a TLS connection with a key as the client",
		Long: `Makes a TLS connection, reports on it, and then copies stdin to the server and the
server's data to stdout. The exit code is 0 when the server has accepted the
handshake with the client's certificate. With TLS 1.3 a server shows that only after
the handshake; the report ends with its verdict.`,
		Example: indent("holdfast tls connect --key alice --ca ca.pem --server-name localhost 127.0.0.1:4433 </dev/null"),
		Args:    arguments("HOST:PORT"),
		PreRunE: func(_ *cobra.Command, args []string) error {
			if host, port, err := net.SplitHostPort(args[0]); err != nil || host == "" || port == "" {
				return usagef("give both, such as localhost:443 or [::1]:443", "%q is not HOST:PORT", args[0])
			}
			return nil
		},
		RunE: a.action(func(ctx context.Context, args []string) error { return a.connect(ctx, &o, args[0]) }),
	}
	cmd.Flags().StringVar(&o.key, "key", "", "the `NAME` of the key to log in with (default none)")
	cmd.Flags().StringVar(&o.ca, "ca", "", "the `FILE` of the certificates, PEM, that must have issued the server's (default the system's)")
	cmd.Flags().StringVar(&o.serverName, "server-name", "", "the `NAME` in the server's certificate (default HOST)")
	return a.group("tls", "try a key out", "holdfast tls connect --key alice --ca ca.pem localhost:4433", cmd)
}

// connect makes the connection and carries it until both sides are done.
func (a *app) connect(ctx context.Context, o *connectOptions, address string) error {
	s := newSession(a)
	cfg, done, err := a.tlsConfig(ctx, o, address, s)
	if err != nil {
		return err
	}
	defer done()
	raw, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", address)
	if err != nil {
		return failf("check the address, and that the server runs", "%w", err)
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	s.raw = &counted{Conn: raw}
	s.conn = tls.Client(s.raw, cfg)
	handshake, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	if err := s.conn.HandshakeContext(handshake); err != nil {
		return aboutKey(o.key, s.explain(ctx, err))
	}
	if err := s.report(cfg.ServerName); err != nil {
		return err
	}
	return s.carry(ctx)
}

// tlsConfig returns the configuration, and a function that releases it.
func (a *app) tlsConfig(ctx context.Context, o *connectOptions, address string, s *session) (*tls.Config, func(), error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, err
	}
	cfg := &tls.Config{ServerName: cmp.Or(o.serverName, host), MinVersion: tls.VersionTLS12, ClientSessionCache: s}
	if o.ca != "" {
		roots, err := a.readCertificates(o.ca)
		if err != nil {
			return nil, nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		cfg.RootCAs.AppendCertsFromPEM(encodeCertificates(roots))
	}
	cfg.GetClientCertificate = s.noCertificate
	if o.key == "" {
		return cfg, func() {}, nil
	}
	c, err := a.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := s.use(ctx, c, o.key, cfg); err != nil {
		c.Close()
		return nil, nil, err
	}
	return cfg, func() { c.Close() }, nil
}

// use sets cfg up with a key, and returns an error when the key cannot log in.
func (s *session) use(ctx context.Context, c *client.Client, name string, cfg *tls.Config) error {
	if err := keys.CheckName(name); err != nil {
		return usageError(err)
	}
	k, err := c.Key(ctx, name)
	if err != nil {
		return err
	}
	if p := k.Info().Purpose; p != string(keys.TLSClient) {
		return &fault.Error{
			Kind: fault.WrongPurpose, Message: fmt.Sprintf("key %s is for %s and cannot log in", name, p),
			Hint: "holdfast key create NAME --purpose tls-client makes one that can",
		}
	}
	if _, err := k.TLSCertificate(); err != nil {
		return err
	}
	if err := k.WithObserver(s.note).ConfigureClient(cfg); err != nil {
		return err
	}
	s.key = k
	s.certificate = cfg.GetClientCertificate
	cfg.GetClientCertificate = s.keyCertificate
	return nil
}

// explain says why a handshake failed. crypto/tls turns the agent's errors into
// text, so the error of the key comes first.
func (s *session) explain(ctx context.Context, err error) error {
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case s.failure() != nil:
		return s.failure()
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return failf("is it a TLS server that answers there?", "no handshake within %s", handshakeTime)
	case errors.As(err, &name):
		return failf("--server-name says which name to expect", "%w", err)
	case errors.As(err, &authority), errors.As(err, &invalid):
		return failf("--ca names the certificates to trust for this server", "%w", err)
	case isAlert(err):
		return s.refusal(err)
	}
	return failf("", "handshake: %w", err)
}

// isAlert reports whether the server sent an alert (RFC 8446, section 6).
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// refusal returns the error for a server's alert.
func (s *session) refusal(err error) error {
	hint := "the server's log says why"
	switch {
	case s.key == nil && s.requested:
		hint = "the server wants a client certificate: --key names the key to log in with"
	case s.key != nil && s.requested:
		hint = "the server does not take the certificate: holdfast certificate show " + s.key.Info().Name + "; the server's log says why"
	case s.key != nil && !s.key.Info().TLS12:
		hint = "key " + s.key.Info().Name + " signs TLS 1.3 only; holdfast key create --tls12 makes one for older servers"
	}
	return failf(hint, "the server refused: %w", err)
}
