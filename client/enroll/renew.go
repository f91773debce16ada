package enroll

import (
	"context"
	"crypto/x509"
	"maps"
	"slices"
	"time"

	"holdfast/client"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
)

// Options is what several renewals have in common.
type Options struct {
	Agent    *client.Client
	NewKey   bool          // create a new key, also where the profile does not say so
	NoJitter bool          // plan renewals exactly at their fraction of the lifetime
	Timeout  time.Duration // for the approval of one request
	Retry    bool          // make another request when an earlier one was denied or has failed

	// CreateKey has the agent create a key.
	CreateKey func(ctx context.Context, p agentwire.CreateKeyParameters) (agentwire.Key, error)
	// Waiting is called when a certificate signing request waits for its approval. It
	// may be nil.
	Waiting func(request, signer string)
}

// A Renewal is the renewal of one profile's certificate.
type Renewal struct {
	Options *Options
	Profile *profile.Profile

	Key     *client.Key // the one that signs in; nil before it is known
	Issued              // its certificate
	Renewed bool        // Issued is new
	Failed  error       // the last failure; nil when there was none since

	notBefore time.Time // of another try
	busy      bool      // a goroutine renews, and owns the fields above
}

// Due returns a renewal for each profile of a directory that this tool renews,
// sorted by name, with one profile for each set of keys; and the faults of the
// profiles that cannot be read.
func Due(directory string, o *Options) (all []*Renewal, faults map[string]error, err error) {
	profiles, faults, err := profile.Load(directory)
	if err != nil {
		return nil, nil, failure(err, "")
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		p := profiles[name]
		if p.Renewal.SignerName == "" || seen[p.Key] { // enrolled in another way, or renewed for another profile
			continue
		}
		seen[p.Key] = true
		all = append(all, &Renewal{Options: o, Profile: p})
	}
	return all, faults, nil
}

// Now renews the certificate, whatever is planned.
func (r *Renewal) Now(ctx context.Context) error {
	if err := r.look(ctx); err != nil {
		return err
	}
	return r.renew(ctx)
}

// look finds the current key, its certificate, and when that is to be renewed.
func (r *Renewal) look(ctx context.Context) error {
	k, err := r.Options.Agent.Current(ctx, r.Profile.Key)
	if err != nil {
		return err
	}
	certificate, err := k.TLSCertificate()
	if err != nil {
		return err
	}
	r.Key, r.Leaf = k, certificate.Leaf
	r.plan()
	return nil
}

func (r *Renewal) plan() {
	if r.Options.NoJitter {
		r.Planned = moment(r.Leaf, r.Profile.Renewal, "")
		return
	}
	r.Planned = planned(r.Leaf, r.Profile.Renewal, r.Key.Info().Name)
}

// renew gets the new certificate.
func (r *Renewal) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.Options.Timeout)
	defer cancel()
	cluster := ClusterOf(r.Profile)
	signedIn, err := newKeyTransport(cluster, r.Key.WithContext(ctx))
	if err != nil {
		return err
	}
	defer signedIn.CloseIdleConnections()
	k := r.Key
	if r.Options.NewKey || r.Profile.Renewal.NewKey {
		if k, err = r.nextKey(ctx); err != nil {
			return err
		}
	}
	o := &order{
		cluster: cluster, agent: r.Options.Agent, key: k, signer: r.signer(), lifetime: r.Profile.Renewal.Lifetime,
		subject: x509.CertificateRequest{RawSubject: r.Leaf.RawSubject, Subject: r.Leaf.Subject},
		profile: r.Profile.Name, present: r.Leaf.Raw, fresh: r.Options.Retry, waiting: r.Options.Waiting,
	}
	issued, err := o.get(ctx, signedIn)
	if err != nil {
		return err
	}
	r.Key, r.Issued, r.Renewed = k, *issued, true
	r.plan()
	return nil
}

func (r *Renewal) signer() string {
	if name := r.Profile.Renewal.SignerName; name != "" {
		return name
	}
	return signerFor(r.Leaf.Subject.CommonName)
}
