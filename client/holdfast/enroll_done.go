package main

import (
	"time"

	"holdfast/client"
	"holdfast/client/enroll"
	"holdfast/client/profile"
)

// enrollment is what `enroll kubernetes --json` prints.
type enrollment struct {
	Profile  string    `json:"profile"`
	Key      string    `json:"key"`
	User     string    `json:"user,omitempty"` // as the API server said
	Groups   []string  `json:"groups,omitempty"`
	Subject  string    `json:"subject"`
	NotAfter time.Time `json:"notAfter"`
	Planned  time.Time `json:"planned"` // when it will be renewed
}

func (a *app) enrolled(o *enrollOptions, p *profile.Profile, k *client.Key, i *issued) error {
	planned := enroll.Moment(i.leaf, p.Renewal, jitterSeed(k.Info().Name))
	if o.json {
		out := enrollment{
			Profile: p.Name, Key: k.Info().Name, Subject: i.leaf.Subject.String(), NotAfter: i.leaf.NotAfter, Planned: planned.UTC(),
		}
		if i.user != nil {
			out.User, out.Groups = i.user.Username, i.user.Groups
		}
		return a.json(out)
	}
	signedIn := "not known: the API server does not say"
	if i.user != nil {
		signedIn = i.identity()
	} else {
		a.note("the certificate is installed, but could not be tried out: %v", i.why)
	}
	err := table(a.stdout,
		[]string{"profile", p.Name},
		[]string{"key", k.Info().Name},
		[]string{"signed in as", signedIn},
		[]string{"valid until", when(i.leaf.NotAfter)},
		[]string{"renewal", when(planned) + ", by holdfast renew --due"},
	)
	kubeContext := o.source.context
	if kubeContext == "" {
		kubeContext = "CONTEXT"
	}
	a.note("next: holdfast kubeconfig add %s --key %s --profile %s", kubeContext, p.Key, p.Name)
	return err
}
