package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// await waits for the certificate (PEM) of a request.
func (c *Client) await(ctx context.Context, made signingRequest) ([]byte, error) {
	w := &waiting{client: c, name: made.Metadata.Name, uid: made.Metadata.UID, version: made.Metadata.ResourceVersion}
	certificate, err := w.outcome(made)
	for certificate == nil && err == nil {
		certificate, err = w.next(ctx)
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil, &PendingError{Name: oneLine(w.name), Approved: w.approved, Last: w.last, Err: ctx.Err()}
	}
	return certificate, err
}

// waiting is the wait for one request.
type waiting struct {
	client             *Client
	name, uid, version string
	approved           bool
	polling            bool          // the server rejects watches, so the request is polled
	delay              time.Duration // before the next poll
	last               error         // of the last poll
}

// The backoff between two polls, where no watch works or a poll has failed.
const (
	firstDelay = time.Second
	lastDelay  = 15 * time.Second
)

// next waits for a change of the request and returns its certificate when it has one.
// It returns neither a certificate nor an error when it has to be called again.
func (w *waiting) next(ctx context.Context) ([]byte, error) {
	if !w.polling && w.version != "" {
		certificate, err := w.watch(ctx)
		if certificate != nil || err != nil {
			return certificate, err
		}
	}
	if err := w.client.wait(ctx, w.backoff()); err != nil {
		return nil, err
	}
	var now signingRequest
	err := w.client.get(ctx, requestsPath+"/"+url.PathEscape(w.name), &now)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if w.last = err; err != nil {
		return nil, w.tolerate(err)
	}
	w.version = now.Metadata.ResourceVersion
	return w.outcome(now)
}

func (w *waiting) backoff() time.Duration {
	delay := w.delay // none before the first poll
	w.delay = min(max(w.delay*3/2, firstDelay), lastDelay)
	return delay
}

// tolerate returns nil for an error that may be temporary: the server cannot be
// reached, or has an internal error. The request still exists then.
func (w *waiting) tolerate(err error) error {
	var answered *StatusError
	if !errors.As(err, &answered) {
		return nil
	}
	switch {
	case answered.Code == http.StatusNotFound:
		return w.gone()
	case answered.Code == http.StatusTooManyRequests || answered.Code >= 500:
		return nil
	}
	return fmt.Errorf("certificate signing request %s: %w", oneLine(w.name), err)
}

func (w *waiting) gone() error {
	return &DecisionError{Name: oneLine(w.name), Condition: conditionFailed, Message: "it was deleted before a certificate was issued"}
}

// outcome returns the certificate of a request that has one, and an error for one
// that will never have one.
func (w *waiting) outcome(o signingRequest) ([]byte, error) {
	if o.Metadata.UID != w.uid {
		return nil, w.gone()
	}
	for _, condition := range o.Status.Conditions {
		switch condition.Type {
		case conditionDenied, conditionFailed:
			return nil, &DecisionError{Name: oneLine(w.name), Condition: condition.Type, Reason: condition.Reason, Message: condition.Message}
		case conditionApproved:
			w.approved = true
		}
	}
	if w.approved && len(o.Status.Certificate) > 0 {
		return slices.Clone(o.Status.Certificate), nil
	}
	return nil, nil
}
