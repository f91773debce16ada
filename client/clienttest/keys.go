package clienttest

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/message"
)

// key is a key in memory.
type key struct {
	agentwire.Key
	private crypto.Signer
	damaged bool
}

// AddKey makes a key in memory and returns its description. Change what the
// stand-in says of it with [Agent.Change].
func (a *Agent) AddKey(name string, purpose keys.Purpose, algorithm keys.Algorithm) agentwire.Key {
	a.tb.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	k, err := a.create(agentwire.CreateKeyParameters{Name: name, Purpose: string(purpose), Algorithm: string(algorithm)})
	if err != nil {
		a.tb.Fatal(err)
	}
	return k.Key
}

// Change changes what the stand-in says of a key.
func (a *Agent) Change(name string, change func(*agentwire.Key)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.keys[name].Key)
}

// Damage makes a key sign wrongly from now on.
func (a *Agent) Damage(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[name].damaged = true
}

func (a *Agent) create(p agentwire.CreateKeyParameters) (*key, error) {
	if name, ok := a.made[p.RequestID]; ok && p.RequestID != "" {
		return a.keys[name], nil
	}
	if a.keys[p.Name] != nil {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("there is a key %q already", p.Name)}
	}
	p.Algorithm = cmp.Or(p.Algorithm, string(keys.ES256))
	scheme, err := keys.SchemeFor(keys.Algorithm(p.Algorithm), keys.Purpose(p.Purpose))
	if err != nil {
		return nil, err
	}
	private, err := generate(keys.Algorithm(p.Algorithm))
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return nil, err
	}
	k := &key{private: private, Key: agentwire.Key{
		Name: p.Name, Purpose: p.Purpose, Backend: "tpm", Algorithm: p.Algorithm, Scheme: string(scheme),
		Owner: agentwire.Owner{UID: uint32(os.Getuid())}, Created: time.Now().UTC(), PublicKey: public,
		Chain: [][]byte{}, Servers: []agentwire.Server{}, Persistent: p.Persistent, PIN: len(p.PIN) > 0, TLS12: p.TLS12,
		Confirm: p.Confirm,
	}}
	if p.OnCard != nil {
		if err := a.place(k, p); err != nil {
			return nil, err
		}
	}
	a.keys[p.Name] = k
	a.made[p.RequestID] = p.Name
	return k, nil
}

func generate(a keys.Algorithm) (crypto.Signer, error) {
	switch a {
	case keys.ES384:
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case keys.RS256:
		return rsa.GenerateKey(rand.Reader, 2048)
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// sign signs msg when it is of one of the kinds.
func (a *Agent) sign(p agentwire.SignParameters, purpose keys.Purpose, kinds ...message.Kind) (agentwire.SignReply, error) {
	k, err := a.find(p.Key)
	if err != nil {
		return agentwire.SignReply{}, err
	}
	if purpose != "" && k.Purpose != string(purpose) {
		return agentwire.SignReply{}, &fault.Error{Kind: fault.WrongPurpose, Message: fmt.Sprintf("key %s is for %s", p.Key, k.Purpose)}
	}
	kind, _ := message.Classify(p.Message)
	for _, want := range kinds {
		if kind == want && p.Scheme == k.Scheme {
			signature, err := k.sign(p.Message)
			return agentwire.SignReply{Signature: signature}, err
		}
	}
	return agentwire.SignReply{}, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("a %q message with %s", kind, p.Scheme)}
}

func (k *key) sign(msg []byte) ([]byte, error) {
	opts := keys.Scheme(k.Scheme).SignerOpts()
	h := opts.HashFunc().New()
	h.Write(msg)
	if k.damaged {
		h.Write([]byte("damage"))
	}
	return k.private.Sign(rand.Reader, h.Sum(nil), opts)
}

func (a *Agent) find(name string) (*key, error) {
	if k := a.keys[name]; k != nil {
		return k, nil
	}
	return nil, &fault.Error{Kind: fault.Denied, Message: fmt.Sprintf("there is no key %q that you may use", name), Hint: "holdfast key list shows yours"}
}
