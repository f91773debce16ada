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

// How long the whole run may take: usually, and once the broker has said that it
// waits for something, such as a person's touch.
const (
	patience = 10 * time.Second
	waiting  = 60 * time.Second
)

// A broker that is being restarted is back within a second. Each try waits twice
// as long as the one before.
const (
	absence  = time.Second
	firstTry = 25 * time.Millisecond
)

// broker asks the broker.
type broker struct {
	path    string // of its socket; empty for the usual places
	stderr  io.Writer
	started time.Time
}

// credential asks until there is an answer or time is up. ctx ends, by cancel,
// when time is up.
func (b *broker) credential(ctx context.Context, cancel context.CancelFunc, o options, r execcredential.Request) (*brokerwire.Credential, error) {
	service := dial.Broker()
	if b.path == "" {
		b.path = service.Path()
	}
	b.started = time.Now()
	limit := &deadline{timer: time.AfterFunc(patience, cancel)}
	limit.seconds.Store(int64(patience / time.Second))
	defer limit.timer.Stop()
	for pause := firstTry; ; pause *= 2 {
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
			return nil, &failure{exitUnreachable, fmt.Sprintf("the broker gave no answer within %d s", limit.seconds.Load()), "`holdfast status` shows what it waits for; its log says more"}
		case !lost(err) || time.Since(b.started) > absence:
			return nil, explain(err)
		}
		time.Sleep(pause)
	}
}

// deadline is when the run is given up.
type deadline struct {
	timer   *time.Timer
	seconds atomic.Int64
}

// extend lets the run take longer, from now on.
func (d *deadline) extend(to time.Duration) {
	d.seconds.Store(int64(to / time.Second))
	d.timer.Reset(to)
}

// lost reports whether there is reason to hope that the broker is only being
// restarted. Asking again does no harm: the broker keeps what it has minted.
func lost(err error) bool {
	var unreachable *dial.UnreachableError
	return errors.Is(err, varlink.ErrConnectionLost) || errors.As(err, &unreachable) && unreachable.Err != nil
}

// parameters is what the broker is asked. It is told what the client says of its
// cluster, and holds it against the profile.
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

// ask makes one call. What the broker waits for is told to the person, once.
func (b *broker) ask(ctx context.Context, conn *varlink.Conn, p brokerwire.GetCredentialParameters, limit *deadline) (*brokerwire.Credential, error) {
	var got *brokerwire.Credential
	said := ""
	err := conn.CallMore(ctx, brokerwire.GetCredential, p, func(reply json.RawMessage, _ bool) error {
		var r brokerwire.GetCredentialReply
		if err := json.Unmarshal(reply, &r); err != nil {
			return errors.New("the broker's answer cannot be understood")
		}
		got = r.Credential
		if got == nil && r.Waiting != "" && r.Waiting != said {
			said = r.Waiting
			fmt.Fprintf(b.stderr, "holdfast: waiting: %s\n", printable.Line(said))
			limit.extend(waiting)
		}
		return nil
	})
	if err == nil && got == nil {
		err = errors.New("the broker's answer has no credential")
	}
	return got, err
}
