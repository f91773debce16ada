package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"holdfast/client/execcredential"
	"holdfast/internal/brokerwire"
	"holdfast/internal/dial"
	"holdfast/internal/printable"
	"holdfast/internal/varlink"
)

// The timeouts of the whole run: the usual one, and the one from the moment at
// which the broker says that it waits, for a touch or another thing.
const (
	timeout        = 10 * time.Second
	waitingTimeout = 60 * time.Second
)

// The plugin connects again while the broker may be restarting, which takes less
// than a second. Each backoff is twice as long as the one before.
const (
	restartTime  = time.Second
	firstBackoff = 25 * time.Millisecond
)

// A broker is the plugin's side of the connection to the broker.
type broker struct {
	path    string // of the broker's socket; empty for the usual places
	stderr  io.Writer
	started time.Time
}

// credential calls the broker until it answers, or until the timeout passes and calls
// cancel.
func (b *broker) credential(ctx context.Context, cancel context.CancelFunc, o options, r execcredential.Request) (*brokerwire.Credential, error) {
	service := dial.Broker()
	if b.path == "" {
		b.path = service.Path()
	}
	b.started = time.Now()
	limit := &deadline{timer: time.AfterFunc(timeout, cancel)}
	limit.seconds.Store(int64(timeout / time.Second))
	defer limit.timer.Stop()
	for backoff := firstBackoff; ; backoff *= 2 {
		conn, err := service.Connect(ctx, b.path)
		var got *brokerwire.Credential
		if err == nil {
			got, err = b.ask(ctx, conn, parameters(o, r), limit)
			conn.Close()
		}
		switch {
		case err == nil:
			return got, nil
		case ctx.Err() != nil:
			return nil, &failure{exitUnreachable, fmt.Sprintf("the broker gave no answer within %d s", limit.seconds.Load()), "`holdfast status` shows what the broker waits for; its log says more"}
		case !lost(err) || time.Since(b.started) > restartTime:
			return nil, explain(err)
		}
		time.Sleep(backoff)
	}
}

// A deadline is the time at which the run ends.
type deadline struct {
	timer   *time.Timer
	seconds atomic.Int64
}

// extend moves the deadline to that long from now.
func (d *deadline) extend(to time.Duration) {
	d.seconds.Store(int64(to / time.Second))
	d.timer.Reset(to)
}

// lost reports whether the broker may be restarting. Asking again does no harm: the
// broker keeps the credentials that it has minted.
func lost(err error) bool {
	var unreachable *dial.UnreachableError
	return errors.Is(err, varlink.ErrConnectionLost) || errors.As(err, &unreachable) && unreachable.Err != nil
}

// parameters returns the parameters of the call. The broker compares the client's
// cluster with the profile's.
func parameters(o options, r execcredential.Request) brokerwire.GetCredentialParameters {
	p := brokerwire.GetCredentialParameters{Profile: o.profile, Mode: o.mode, Unauthorized: r.Unauthorized}
	if c := r.Cluster; c != nil && o.mode != brokerwire.ModeProxy {
		p.Cluster = &brokerwire.Cluster{
			Server: c.Server, TLSServerName: c.TLSServerName, InsecureSkipTLSVerify: c.InsecureSkipTLSVerify,
			CertificateAuthorityData: c.CertificateAuthorityData, ProxyURL: c.ProxyURL, DisableCompression: c.DisableCompression,
		}
	}
	return p
}

// ask makes one call. It shows the user once what the broker waits for.
func (b *broker) ask(ctx context.Context, conn *varlink.Conn, p brokerwire.GetCredentialParameters, limit *deadline) (*brokerwire.Credential, error) {
	var got *brokerwire.Credential
	shown := ""
	err := conn.CallMore(ctx, brokerwire.GetCredential, p, func(reply json.RawMessage, _ bool) error {
		var r brokerwire.GetCredentialReply
		if err := json.Unmarshal(reply, &r); err != nil {
			return errors.New("the broker's answer cannot be understood")
		}
		got = r.Credential
		if got == nil && r.Waiting != "" && r.Waiting != shown {
			shown = r.Waiting
			fmt.Fprintf(b.stderr, "holdfast: waiting: %s\n", printable.Line(shown))
			limit.extend(waitingTimeout)
		}
		return nil
	})
	if err == nil && got == nil {
		err = errors.New("the broker's answer has no credential")
	}
	return got, err
}
