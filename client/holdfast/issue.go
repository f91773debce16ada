package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"holdfast/client"
	"holdfast/client/exchange/kubernetes"
	"holdfast/client/exchange/kubernetes/signin"
	"holdfast/internal/fault"
)

// The signers that every cluster has, for people and for nodes.
const (
	peopleSigner = "kubernetes.io/kube-apiserver-client"
	nodeSigner   = "kubernetes.io/kube-apiserver-client-kubelet"
)

// order is a certificate to be got for a key.
type order struct {
	cluster  *signin.Cluster
	agent    *client.Client
	key      *client.Key
	subject  x509.CertificateRequest // its subject alone
	signer   string
	lifetime time.Duration
	profile  string // whoever approves sees it in the request's name
	present  []byte // the certificate that is to be replaced, DER; empty when there is none
	fresh    bool   // a request that was decided on before does not count: a person wants another try
	created  func(name string)
}

// issued is what came of an order.
type issued struct {
	leaf *x509.Certificate
	user *kubernetes.User // whom the API server takes the key for; nil when it did not say
	why  error            // why it did not say
}

// get asks for the certificate through signedIn, tries it out, and gives it to
// the key. What the API server does not take is not installed: the key keeps the
// certificate that it has.
func (o *order) get(ctx context.Context, signedIn http.RoundTripper) (*issued, error) {
	csr, err := o.key.WithContext(ctx).CertificateRequest(&o.subject)
	if err != nil {
		return nil, err
	}
	chain, err := o.request(ctx, signedIn, csr)
	if err != nil {
		return nil, o.explain(err)
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, err
	}
	result := &issued{leaf: leaf}
	if result.user, result.why = o.prove(ctx, chain); refusedCredential(result.why) {
		return nil, &problem{
			"the API server does not take the certificate that " + o.signer + " issued: " + result.why.Error(),
			"do its --client-ca-file and the signer's CA belong together? the key keeps the certificate that it had", exitFailed, result.why,
		}
	}
	if _, err := o.agent.InstallCertificate(ctx, o.key.Info().Name, chain); err != nil {
		return nil, err
	}
	return result, nil
}

// request asks for the certificate, once: a request that waits for its approval
// since an earlier try is the one that is waited for.
func (o *order) request(ctx context.Context, signedIn http.RoundTripper, csr []byte) ([][]byte, error) {
	found := false
	kube := &kubernetes.Client{Server: o.cluster.Server, HTTP: signedIn}
	r := kubernetes.CertificateRequest{
		CSR: csr, SignerName: o.signer, Lifetime: o.lifetime, Once: o.requestName(), Created: o.created,
		Found: func(name string) {
			if found = true; o.created != nil {
				o.created(name)
			}
		},
	}
	chain, err := kube.RequestCertificate(ctx, r)
	decided := errors.As(err, new(*kubernetes.DecisionError)) && o.fresh
	if found && (decided || errors.As(err, new(*kubernetes.CertificateError))) {
		r.Once, r.Name = "", o.prefix()
		chain, err = kube.RequestCertificate(ctx, r)
	}
	return chain, err
}

func (o *order) prefix() string { return "holdfast-" + o.profile + "-" }

// requestName is the same for every try to get this certificate, and another one
// for the next.
func (o *order) requestName() string {
	h := sha256.New()
	for _, part := range []string{
		string(o.key.Info().PublicKey), o.subject.Subject.String(), string(o.subject.RawSubject), o.signer, o.lifetime.String(), string(o.present),
	} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return o.prefix() + hex.EncodeToString(h.Sum(nil)[:5])
}

// leafOfKey returns the certificate that a key has, DER, or nothing.
func leafOfKey(k *client.Key) []byte {
	if chain := k.Info().Chain; len(chain) > 0 {
		return chain[0]
	}
	return nil
}

// proveTime is how long the first use of a certificate may take; a person may
// have to touch the device.
const proveTime = 2 * time.Minute

// prove signs in with the key and a chain and asks who that is.
func (o *order) prove(ctx context.Context, chain [][]byte) (*kubernetes.User, error) {
	ctx, cancel := context.WithTimeout(ctx, proveTime)
	defer cancel()
	transport, err := newKeyTransport(o.cluster, o.key.WithChain(chain).WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer transport.CloseIdleConnections()
	user, err := (&kubernetes.Client{Server: o.cluster.Server, HTTP: transport}).WhoAmI(ctx)
	if err != nil {
		return nil, err
	}
	return &user, nil
}

// refusedCredential reports whether the API server refused a credential, rather
// than what was asked with it.
func refusedCredential(err error) bool {
	var status *kubernetes.StatusError
	return errors.As(err, &status) && status.Code == http.StatusUnauthorized
}

// explain adds the next step to what went wrong with a request.
func (o *order) explain(err error) error {
	var pending *kubernetes.PendingError
	var decided *kubernetes.DecisionError
	var unfit *kubernetes.CertificateError
	var status *kubernetes.StatusError
	if _, ofKey := fault.AsError(err); ofKey {
		return err
	}
	hint := ""
	switch {
	case errors.As(err, &pending) && pending.Last != nil:
		hint = "the API server could not be asked any more; the request is still there"
	case errors.As(err, &pending) && pending.Approved:
		hint = "does a controller sign for " + o.signer + "? kube-controller-manager does for Kubernetes' own signers"
	case errors.As(err, &pending):
		hint = "kubectl certificate approve " + pending.Name + " approves it, by somebody who may; then try again, or wait longer with --timeout"
	case errors.As(err, &decided):
		hint = "kubectl describe csr " + decided.Name + " shows it; ask whoever decides on requests of " + o.signer
	case errors.As(err, &unfit):
		hint = unfit.Hint
	case errors.As(err, &status):
		hint = o.refusalHint(status)
	case errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.HostnameError)), errors.As(err, new(x509.CertificateInvalidError)):
		hint = "the server is not the one that the CA and the name stand for; nothing was sent to it"
	}
	return &problem{err.Error(), hint, exitFailed, err}
}

func (o *order) refusalHint(s *kubernetes.StatusError) string {
	for _, group := range o.subject.Subject.Organization {
		if group == mastersGroup && s.Code == http.StatusForbidden {
			return "no signer gives certificates for " + mastersGroup + ", which nobody could take away again; --subject CN=…,O=… names another group"
		}
	}
	switch s.Code {
	case http.StatusUnauthorized:
		return "the API server does not know who asks: has the token or the certificate that signs in expired?"
	case http.StatusForbidden:
		return "who signs in must be allowed to create certificatesigningrequests (certificates.k8s.io)"
	}
	return ""
}

// mastersGroup may do everything, whatever the cluster's rules say.
const mastersGroup = "system:masters"

// identity shows whom the API server takes a key for.
func (i *issued) identity() string {
	if i.user == nil {
		return ""
	}
	text := i.user.Username
	var groups []string
	for _, g := range i.user.Groups {
		if g != authenticatedGroup {
			groups = append(groups, g)
		}
	}
	if len(groups) > 0 {
		text += fmt.Sprintf(" (groups %s)", words(groups))
	}
	return text
}

// authenticatedGroup is everybody's who has signed in.
const authenticatedGroup = "system:authenticated"
