package client

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"fmt"

	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
	"holdfast/internal/message"
)

// ask calls the agent's method for the kind of msg. The agent decides whether the key's
// purpose allows it.
func (k *Key) ask(ctx context.Context, msg []byte) ([]byte, error) {
	method, err := k.verb(msg)
	if err != nil {
		return nil, err
	}
	var in any = agentwire.SignParameters{Key: k.info.Name, Scheme: string(k.scheme), Message: msg, RequestID: rand.Text()}
	if method == agentwire.SignTLSClient {
		p := in.(agentwire.SignParameters)
		in = agentwire.SignTLSClientParameters{Key: p.Key, Scheme: p.Scheme, Message: p.Message, OnBehalfOf: behalf(ctx), RequestID: p.RequestID}
	}
	var reply agentwire.SignReply
	call := k.client.call
	if k.asksUser() || k.touches() {
		call = k.client.exchange
	}
	err = call(ctx, repeatable, method, in, &reply)
	return reply.Signature, err
}

func (k *Key) verb(msg []byte) (string, error) {
	kind, _ := message.Classify(msg)
	switch kind {
	case message.TLS13Client, message.TLS12Client:
		return agentwire.SignTLSClient, nil
	case message.TLS13Server, message.TLS12Server:
		return agentwire.SignTLSServer, nil
	case message.CSR:
		return agentwire.SignCertificateRequest, nil
	}
	return "", &Error{
		Kind:    BadRequest,
		Message: fmt.Sprintf("key %s signs TLS handshakes and certificate requests, and these %d bytes are neither", k.info.Name, len(msg)),
		Hint:    "a key signs only what its purpose (" + k.info.Purpose + ") says",
	}
}

// checkOpts returns a bad-request error unless opts ask for scheme s exactly.
// For RSA-PSS that is *rsa.PSSOptions with a salt as long as the hash (RFC 8446,
// section 4.2.3); a plain hash would mean PKCS #1 v1.5.
func checkOpts(s keys.Scheme, opts crypto.SignerOpts) error {
	pss, isPSS := opts.(*rsa.PSSOptions)
	switch {
	case opts == nil, isPSS && pss == nil:
		return wrongOpts(s, "no options were given")
	case opts.HashFunc() != s.Hash():
		return wrongOpts(s, fmt.Sprintf("hash %v was asked for", opts.HashFunc()))
	case isPSS != (s == keys.RSAPSSSHA256):
		return wrongOpts(s, "another padding was asked for")
	case isPSS && pss.SaltLength != rsa.PSSSaltLengthEqualsHash && pss.SaltLength != s.Hash().Size():
		return wrongOpts(s, fmt.Sprintf("salt length %d was asked for", pss.SaltLength))
	}
	return nil
}

func wrongOpts(s keys.Scheme, what string) error {
	return &Error{
		Kind:    BadRequest,
		Message: fmt.Sprintf("the key signs %s and nothing else, and %s", s, what),
		Hint:    "use the options of that scheme; tls.Certificate.SupportedSignatureAlgorithms tells crypto/tls",
	}
}
