package client

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"time"

	"holdfast/internal/keys"
)

// defaultTimeout is how long one signature may take, the wait for other callers
// and for a user at the device included.
const defaultTimeout = time.Minute

// Key is a private key behind an agent. It is a crypto.Signer and a
// crypto.MessageSigner, so crypto/tls and crypto/x509 take it for a private key.
// It is safe for concurrent use and never changes: a chain that is installed later
// is seen by the next [Client.Key], and by a tls.Config that the key configured.
type Key struct {
	client  *Client
	info    KeyInfo
	public  crypto.PublicKey
	scheme  keys.Scheme
	ctx     context.Context // for the methods of crypto's interfaces, which have none
	timeout time.Duration
	signed  func(took time.Duration, err error) // called after each signature; may be nil
}

var _ crypto.MessageSigner = (*Key)(nil)

// Key returns the key named name as a signer. It makes one call to the agent, and
// the device does nothing.
func (c *Client) Key(ctx context.Context, name string) (*Key, error) {
	info, err := c.GetKey(ctx, name)
	if err != nil {
		return nil, err
	}
	public, err := keys.ParsePublic(info.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", name, err)
	}
	k := &Key{client: c, info: info, public: public, ctx: context.Background(), timeout: defaultTimeout}
	if k.scheme, err = schemeOf(info, public); err != nil {
		return nil, err
	}
	return k, nil
}

// schemeOf returns the key's scheme, and an error when the agent names another one.
func schemeOf(info KeyInfo, public crypto.PublicKey) (keys.Scheme, error) {
	algorithm, _, err := keys.AlgorithmOf(public)
	if err != nil {
		return "", err
	}
	scheme, err := keys.SchemeFor(algorithm, keys.Purpose(info.Purpose))
	if err != nil {
		return "", err
	}
	if string(scheme) != info.Scheme {
		return "", &Error{
			Kind:    Unsupported,
			Message: fmt.Sprintf("key %s signs %.40q, and this program knows %s for its type", info.Name, info.Scheme, scheme),
			Hint:    "update this program",
		}
	}
	return scheme, nil
}

// Public returns the public key: an *ecdsa.PublicKey or an *rsa.PublicKey.
func (k *Key) Public() crypto.PublicKey { return k.public }

// Info returns the agent's description of the key from when it was fetched.
func (k *Key) Info() KeyInfo { return k.info }

// WithContext returns a copy of k whose signatures are cancelled when ctx ends.
func (k *Key) WithContext(ctx context.Context) *Key {
	c := *k
	c.ctx = ctx
	return &c
}

// WithTimeout returns a copy of k with another timeout for its signatures; 0 means
// none. The default is 60 s.
func (k *Key) WithTimeout(d time.Duration) *Key {
	c := *k
	c.timeout = d
	return &c
}

// WithObserver returns a copy of k that calls signed after each signature. The error
// is the agent's own, of which crypto/tls keeps only the text.
func (k *Key) WithObserver(signed func(took time.Duration, err error)) *Key {
	c := *k
	c.signed = signed
	return &c
}

// Sign always fails: a digest does not show what is being signed, so the agent takes
// whole messages only. Use a library that asks for a crypto.MessageSigner, as
// crypto/tls and crypto/x509 do.
func (k *Key) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, &Error{
		Kind:    Unsupported,
		Message: fmt.Sprintf("key %s signs whole messages, not digests", k.info.Name),
		Hint:    "sign through crypto.SignMessage, as crypto/tls and crypto/x509 do since Go 1.25",
	}
}

// SignMessage has the agent sign msg, which must be a message of the key's purpose:
// the input of a TLS handshake signature or a CertificationRequestInfo. opts must be
// those of the key's one scheme; rand is not used. ECDSA signatures are ASN.1 DER.
// The agent verifies the signature before it returns it.
//
// When the connection is lost it retries once with the same request id. The error is
// an [*Error], an [*UnreachableError], or that of the key's context.
func (k *Key) SignMessage(_ io.Reader, msg []byte, opts crypto.SignerOpts) ([]byte, error) {
	started := time.Now()
	signature, err := k.sign(msg, opts)
	if k.signed != nil {
		k.signed(time.Since(started), err)
	}
	return signature, err
}

func (k *Key) sign(msg []byte, opts crypto.SignerOpts) ([]byte, error) {
	if err := checkOpts(k.scheme, opts); err != nil {
		return nil, err
	}
	ctx, cancel := k.deadline()
	defer cancel()
	defer k.awaitTouch(ctx)()
	signature, err := k.ask(ctx, msg)
	if errors.Is(err, context.DeadlineExceeded) && k.ctx.Err() == nil {
		return nil, &Error{
			Kind:    Deadline,
			Message: fmt.Sprintf("key %s gave no signature within %s", k.info.Name, k.timeout),
			Hint:    "holdfast status shows what its device is doing",
			Err:     err,
		}
	}
	return signature, err
}

func (k *Key) deadline() (context.Context, context.CancelFunc) {
	if k.timeout == 0 {
		return context.WithCancel(k.ctx)
	}
	return context.WithTimeout(k.ctx, k.timeout)
}
