// Package enroll gets keys their certificates from Kubernetes clusters: the first
// one with [Request.Enroll], later ones with [Renewal.Now], and those that are due
// with [Run.Do]. [Planned] says when a certificate is due.
//
// It prints nothing and asks nothing: messages to the user go through the functions in
// [Request], [Options] and [Run]. Each new certificate is tried out
// before a key gets it, so a failure leaves the key with the certificate that it has.
// The credential of the first sign-in stays in memory.
package enroll

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/client"
	"holdfast/client/exchange/kubernetes"
	"holdfast/client/exchange/kubernetes/signin"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// A Request says which key to enroll, where, and as whom.
type Request struct {
	Directory string // of the profiles
	Profile   string // the name of the profile to write
	Key       string // the set of keys; empty: the profile's, which is then noted here
	Source    Source

	Subject  *pkix.Name // nil: the user that signs in
	Signer   string     // empty: the signer of Kubernetes itself for the subject
	Lifetime time.Duration
	Timeout  time.Duration // for the approval
	NoJitter bool          // renewals are exactly when planned
	NewKey   bool          // renewals make new keys

	// CreateKey creates the key where there is none; nil when none is to be created.
	CreateKey func(ctx context.Context, name string) (agentwire.Key, error)
	// Waiting is called when a certificate signing request waits for its approval,
	// and again when another takes its place. It may be nil.
	Waiting func(request, signer string)
}

// An Enrollment is the result of a request.
type Enrollment struct {
	Profile *profile.Profile
	Key     string // its name
	Context string // the kubeconfig's that signed in; empty when a token did
	Issued
}

// ErrRequest is the cause of a failure that the caller can end by asking for
// something else: the request does not fit the profile, the kubeconfig or the user.
var ErrRequest = errors.New("the request does not fit")

// mistake returns an error about what the caller asked for.
func mistake(hint, format string, args ...any) error {
	return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf(format, args...), Hint: hint, Err: ErrRequest}
}

// failure returns err as a failure with a next step.
func failure(err error, hint string) error {
	return &fault.Error{Kind: fault.Internal, Message: err.Error(), Hint: hint}
}

// Enroll gets the certificate, gives it to the key, and writes the profile. Nothing
// is written, created or sent before the request is known to fit the existing
// profile.
func (r *Request) Enroll(ctx context.Context, agent *client.Client) (*Enrollment, error) {
	p, err := r.prepare()
	if err != nil {
		return nil, err
	}
	if p.Cluster.ProxyURL == "" { // the broker and the timer that renews have another environment
		if p.Cluster.ProxyURL, err = signin.ProxyFor(p.Cluster.Server); err != nil {
			return nil, failure(err, "")
		}
	}
	cluster := ClusterOf(p)
	auth, err := r.Source.signIn(ctx, cluster)
	if err != nil {
		return nil, err
	}
	signedIn, err := cluster.Transport(auth)
	if err != nil {
		return nil, failure(err, "")
	}
	defer signedIn.CloseIdleConnections()
	subject, err := r.subject(ctx, cluster, signedIn)
	if err != nil {
		return nil, err
	}
	if r.Signer == "" {
		r.Signer = signerFor(subject.CommonName)
	}
	r.planRenewals(p)
	if err := p.Check(); err != nil { // before the cluster is asked for anything
		return nil, failure(fmt.Errorf("profile %s: %w", p.Name, err), "")
	}
	k, err := r.key(ctx, agent, p.Key)
	if err != nil {
		return nil, err
	}
	o := &order{
		cluster: cluster, agent: agent, key: k, subject: x509.CertificateRequest{Subject: subject},
		signer: r.Signer, lifetime: r.Lifetime, profile: p.Name, present: leafOf(k), fresh: true, waiting: r.Waiting,
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	issued, err := o.get(ctx, signedIn)
	if err != nil {
		return nil, err
	}
	if err := profile.Write(r.Directory, p); err != nil {
		return nil, failure(err, "the key has its certificate; correct this and run the command again")
	}
	issued.Planned = planned(issued.Leaf, p.Renewal, k.Info().Name)
	return &Enrollment{Profile: p, Key: k.Info().Name, Context: r.Source.Context, Issued: *issued}, nil
}

// prepare returns the profile to write: the existing one, or a new one with the source's
// cluster.
func (r *Request) prepare() (*profile.Profile, error) {
	p, err := Find(r.Directory, r.Profile)
	if err != nil {
		return nil, err
	}
	cluster, err := r.Source.cluster()
	if err != nil {
		return nil, err
	}
	if p == nil {
		if r.Key == "" {
			return nil, mistake("the key to enroll; --create makes it when there is none",
				"--key is missing, and there is no profile %s to name one", r.Profile)
		}
		if cluster == nil {
			return nil, mistake("there is no profile "+r.Profile+" to name them", "--server and --ca are missing")
		}
		return &profile.Profile{Name: r.Profile, Key: r.Key, Modes: []string{profile.ModeProxy}, Cluster: *cluster}, nil
	}
	switch {
	case r.Key != "" && r.Key != p.Key:
		return nil, mistake("name another profile, or leave --key out", "profile %s is for key %s, not for %s", p.Name, p.Key, r.Key)
	case cluster != nil && cluster.Server != p.Cluster.Server:
		// A credential for one cluster must not be sent to another.
		return nil, mistake("name another profile, or a context of the same cluster",
			"profile %s is for %s, not for %s", p.Name, p.Cluster.Server, cluster.Server)
	}
	r.Key = p.Key
	return p, nil
}

// planRenewals sets in the profile how its certificate will be renewed.
func (r *Request) planRenewals(p *profile.Profile) {
	first := p.Renewal.SignerName == ""
	p.Renewal.SignerName, p.Renewal.Lifetime = r.Signer, r.Lifetime
	p.Renewal.NewKey = r.NewKey || p.Renewal.NewKey
	switch {
	case r.NoJitter:
		p.Renewal.Jitter = 0
	case first && p.Renewal.Jitter == 0 && (p.Renewal.Fraction == 0 || p.Renewal.Fraction > DefaultJitter):
		p.Renewal.Jitter = DefaultJitter
	}
}

// DefaultJitter is the jitter of a new profile. It spreads the renewals of machines
// that were enrolled together.
const DefaultJitter = 0.1

// NodeSubject returns the subject of a node's certificate.
func NodeSubject(name string) *pkix.Name {
	return &pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}
}

// subject returns the subject to ask for.
func (r *Request) subject(ctx context.Context, cluster *signin.Cluster, signedIn *signin.Transport) (pkix.Name, error) {
	if r.Subject != nil {
		return *r.Subject, nil
	}
	user, err := (&kubernetes.Client{Server: cluster.Server, HTTP: signedIn}).WhoAmI(ctx)
	if err != nil {
		return pkix.Name{}, (&order{}).explain(fmt.Errorf("asking for the user's name: %w", err))
	}
	if strings.HasPrefix(user.Username, "system:") && !profile.Node(user.Username) {
		return pkix.Name{}, mistake("--subject CN=USER,O=GROUP or --node NAME says whom to enroll",
			"the credential signs in as %s, which is neither a person nor a node", user.Username)
	}
	return pkix.Name{CommonName: user.Username, Organization: Groups(user)}, nil
}

// Groups returns the user's groups, without the one of every user that has signed in.
func Groups(user kubernetes.User) []string {
	return slices.DeleteFunc(slices.Clone(user.Groups), func(g string) bool { return g == "system:authenticated" })
}

// key returns the key to enroll: the newest usable one of the set, or a new one when
// there is none and one may be created.
func (r *Request) key(ctx context.Context, agent *client.Client, set string) (*client.Key, error) {
	generations, err := agent.Generations(ctx, set)
	if fault.KindOf(err) == fault.Denied && r.CreateKey != nil {
		k, err := r.CreateKey(ctx, set)
		if err != nil {
			return nil, err
		}
		return agent.Key(ctx, k.Name)
	}
	if err != nil {
		return nil, err
	}
	newest := generations[0]
	if i := slices.IndexFunc(generations, func(k agentwire.Key) bool { return k.Fault == "" }); i > 0 {
		newest = generations[i]
	}
	if newest.Purpose != string(keys.TLSClient) {
		return nil, &fault.Error{
			Kind: fault.WrongPurpose, Message: fmt.Sprintf("key %s is for %s and cannot sign in", newest.Name, newest.Purpose),
			Hint: "--key NAME --create makes one that can",
		}
	}
	return agent.Key(ctx, newest.Name)
}
