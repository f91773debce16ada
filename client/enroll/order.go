package enroll

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"holdfast/client"
	"holdfast/client/exchange/kubernetes"
	"holdfast/client/exchange/kubernetes/signin"
	"holdfast/client/profile"
	"holdfast/internal/fault"
)

// The signers that every cluster has, for people and for nodes.
const (
	PeopleSigner = "kubernetes.io/kube-apiserver-client"
	NodeSigner   = "kubernetes.io/kube-apiserver-client-kubelet"
)

// signerFor returns the signer of Kubernetes itself for a user.
func signerFor(commonName string) string {
	if profile.Node(commonName) {
		return NodeSigner
	}
	return PeopleSigner
}

// order is a certificate to be got for a key.
type order struct {
	cluster  *signin.Cluster
	agent    *client.Client
	key      *client.Key
	subject  x509.CertificateRequest // its subject alone
	signer   string
	lifetime time.Duration
	profile  string // part of the request's name, for its approver
	present  []byte // the certificate to replace, DER; empty when there is none
	fresh    bool   // make another request when an earlier one was denied or has failed
	waiting  func(request, signer string)
}

// Issued is a certificate that a key was given.
type Issued struct {
	Leaf     *x509.Certificate
	Planned  time.Time        // when it is to be renewed
	User     *kubernetes.User // the user that it signs in as; nil when the API server did not say
	Unproven error            // why the API server did not say
}

// get asks for the certificate through signedIn, tries it out, and gives it to
// the key. A certificate that the API server rejects is not installed: the key keeps
// the one that it has.
func (o *order) get(ctx context.Context, signedIn http.RoundTripper) (*Issued, error) {
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
	result := &Issued{Leaf: leaf}
	if result.User, result.Unproven = o.prove(ctx, chain); rejectedCredential(result.Unproven) {
		return nil, failure(fmt.Errorf("the API server does not take the certificate that %s issued: %w", o.signer, result.Unproven),
			"do its --client-ca-file and the signer's CA belong together? the key keeps the certificate that it had")
	}
	if _, err := o.agent.InstallCertificate(ctx, o.key.Info().Name, chain); err != nil {
		return nil, err
	}
	return result, nil
}

// request asks for the certificate once: where a request of an earlier try still
// waits for its approval, request waits for that one.
func (o *order) request(ctx context.Context, signedIn http.RoundTripper, csr []byte) ([][]byte, error) {
	found := false
	waiting := func(name string) {
		if o.waiting != nil {
			o.waiting(name, o.signer)
		}
	}
	kube := &kubernetes.Client{Server: o.cluster.Server, HTTP: signedIn}
	r := kubernetes.CertificateRequest{
		CSR: csr, SignerName: o.signer, Lifetime: o.lifetime, Once: o.requestName(), Created: waiting,
		Found: func(name string) {
			found = true
			waiting(name)
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

// requestName returns a name that is the same for every try to get this certificate,
// and differs for the next certificate.
func (o *order) requestName() string {
	h := sha256.New()
	for _, part := range []string{
		string(o.key.Info().PublicKey), o.subject.Subject.String(), string(o.subject.RawSubject), o.signer, o.lifetime.String(), string(o.present),
	} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return o.prefix() + hex.EncodeToString(h.Sum(nil)[:5])
}

// leafOf returns the certificate that a key has, DER, or nothing.
func leafOf(k *client.Key) []byte {
	if chain := k.Info().Chain; len(chain) > 0 {
		return chain[0]
	}
	return nil
}

// proveTime is how long the first use of a certificate may take; a user may
// have to touch the device.
const proveTime = 2 * time.Minute

// prove signs in with the key and a chain, and asks for the name of the user.
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

// rejectedCredential reports whether the API server rejected a credential, rather
// than the request that it came with.
func rejectedCredential(err error) bool {
	var status *kubernetes.StatusError
	return errors.As(err, &status) && status.Code == http.StatusUnauthorized
}

// explain adds the next step to the failure of a request.
func (o *order) explain(err error) error {
	var pending *kubernetes.PendingError
	var decided *kubernetes.DecisionError
	var unfit *kubernetes.CertificateError
	var status *kubernetes.StatusError
	if _, ofKey := fault.AsError(err); ofKey {
		return err
	}
	kind, hint := fault.Internal, ""
	if errors.As(err, &pending) {
		kind = fault.Deadline
	}
	switch {
	case errors.As(err, &pending) && pending.Last != nil:
		hint = "the API server could not be asked any more; the request is still there"
	case errors.As(err, &pending) && pending.Approved:
		hint = "does a controller sign for " + o.signer + "? kube-controller-manager does for Kubernetes' own signers"
	case errors.As(err, &pending):
		hint = "kubectl certificate approve " + pending.Name + " approves it, run by a user with the right to approve; then try again, or wait longer with --timeout"
	case errors.As(err, &decided):
		hint = "kubectl describe csr " + decided.Name + " shows it; ask the people who decide on requests of " + o.signer
	case errors.As(err, &unfit):
		hint = unfit.Hint
	case errors.As(err, &status):
		hint = o.rejectionHint(status)
	case errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.HostnameError)), errors.As(err, new(x509.CertificateInvalidError)):
		hint = "the server's certificate does not match the CA and the name; nothing was sent to it"
	}
	return &fault.Error{Kind: kind, Message: err.Error(), Hint: hint}
}

func (o *order) rejectionHint(s *kubernetes.StatusError) string {
	switch {
	case s.Code == http.StatusForbidden && slices.Contains(o.subject.Subject.Organization, mastersGroup):
		return "no signer issues certificates for " + mastersGroup + ", which could never be revoked; --subject CN=…,O=… names another group"
	case s.Code == http.StatusUnauthorized:
		return "the API server rejects the credential: has the token or the certificate that signs in expired?"
	case s.Code == http.StatusForbidden:
		return "the user that signs in must be allowed to create certificatesigningrequests (certificates.k8s.io)"
	}
	return ""
}

// mastersGroup is the group that may do everything, whatever the cluster's rules say.
const mastersGroup = "system:masters"
