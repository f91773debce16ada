package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// tokenRequest is an authentication.k8s.io/v1 TokenRequest.
type tokenRequest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Audiences         []string `json:"audiences"`
		ExpirationSeconds int64    `json:"expirationSeconds,omitempty"`
	} `json:"spec"`
	Status struct {
		Token               string    `json:"token"`
		ExpirationTimestamp time.Time `json:"expirationTimestamp"`
	} `json:"status"`
}

// RequestToken requests a token of a service account. The server may choose another
// lifetime; Expires is the server's.
func (c *Client) RequestToken(ctx context.Context, r TokenRequest) (Token, error) {
	namespace, err := segment("namespace", r.Namespace)
	if err != nil {
		return Token{}, err
	}
	account, err := segment("service account", r.ServiceAccount)
	if err != nil {
		return Token{}, err
	}
	if r.Lifetime != 0 && r.Lifetime < minLifetime {
		return Token{}, fmt.Errorf("token request: a lifetime of %s is shorter than the %s that Kubernetes allows", r.Lifetime, minLifetime)
	}
	in := tokenRequest{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}
	in.Spec.Audiences = r.Audiences
	in.Spec.ExpirationSeconds = int64(r.Lifetime / time.Second)
	var out tokenRequest
	if err := c.post(ctx, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", in, &out); err != nil {
		return Token{}, fmt.Errorf("token request: %w", err)
	}
	if err := checkToken(out, time.Now()); err != nil {
		return Token{}, err
	}
	return Token{Token: out.Status.Token, Expires: out.Status.ExpirationTimestamp}, nil
}

// checkToken rejects a token that is not a bearer token (RFC 6750, section 2.1) or has
// expired. Its errors do not contain the token.
func checkToken(r tokenRequest, now time.Time) error {
	strange := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case r.Status.Token == "", strings.ContainsFunc(r.Status.Token, strange):
		return errors.New("token request: the answer has no token")
	case r.Status.ExpirationTimestamp.IsZero():
		return errors.New("token request: the answer does not say when the token expires")
	case !now.Before(r.Status.ExpirationTimestamp):
		return fmt.Errorf("token request: the token expired on %s, and here it is %s: the clocks differ", stamp(r.Status.ExpirationTimestamp), stamp(now))
	}
	return nil
}

// WhoAmI makes a SelfSubjectReview. A [*StatusError] with code 401 means that the
// server rejects the credential.
func (c *Client) WhoAmI(ctx context.Context) (User, error) {
	in := map[string]string{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
	var out struct {
		Status struct {
			UserInfo User `json:"userInfo"`
		} `json:"status"`
	}
	if err := c.post(ctx, "/apis/authentication.k8s.io/v1/selfsubjectreviews", in, &out); err != nil {
		return User{}, err
	}
	if out.Status.UserInfo.Username == "" {
		return User{}, errors.New("self-subject review: the answer is not an API server's: it names no user")
	}
	return out.Status.UserInfo, nil
}
