package kubernetes

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// A DecisionError says that a certificate signing request was denied by an
// approver or failed at its signer.
type DecisionError struct {
	Name      string // of the CertificateSigningRequest
	Condition string // Denied or Failed
	Reason    string // the approver's or signer's, one word; may be empty
	Message   string // the approver's or signer's; may be empty
}

// Error returns the decision, with the reason where there is one. It is fit for a
// terminal.
func (e *DecisionError) Error() string {
	text := fmt.Sprintf("certificate signing request %s %s", e.Name, map[bool]string{true: "was denied", false: "failed"}[e.Condition == conditionDenied])
	if why := e.Message; why != "" || e.Reason != "" {
		if why == "" {
			why = e.Reason
		}
		text += ": " + oneLine(why)
	}
	return text
}

// A PendingError says that a certificate signing request was still pending when its
// context ended; the context's error is the cause.
type PendingError struct {
	Name     string // of the CertificateSigningRequest
	Approved bool   // it was approved, but no certificate was issued
	Last     error  // the error of the last request to the server; nil when the server answered
	Err      error
}

// Error says what the request waits for.
func (e *PendingError) Error() string {
	switch {
	case e.Last != nil:
		return fmt.Sprintf("certificate signing request %s: %v", e.Name, e.Last)
	case e.Approved:
		return fmt.Sprintf("certificate signing request %s was approved, but no signer has issued its certificate yet", e.Name)
	}
	return fmt.Sprintf("certificate signing request %s is not approved yet", e.Name)
}

// Unwrap returns the cause.
func (e *PendingError) Unwrap() error { return e.Err }

// The conditions of a request.
const (
	conditionApproved = "Approved"
	conditionDenied   = "Denied"
	conditionFailed   = "Failed"
)

// metadata holds the members of a meta/v1 ObjectMeta that are used.
type metadata struct {
	Name            string `json:"name,omitempty"`
	GenerateName    string `json:"generateName,omitempty"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// signingRequest is a certificates.k8s.io/v1 CertificateSigningRequest.
type signingRequest struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       struct {
		Request           []byte   `json:"request"` // PEM
		SignerName        string   `json:"signerName"`
		ExpirationSeconds int64    `json:"expirationSeconds,omitempty"`
		Usages            []string `json:"usages"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type    string `json:"type"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"conditions,omitempty"`
		Certificate []byte `json:"certificate,omitempty"` // PEM
	} `json:"status"`
}

// RequestCertificate makes a CertificateSigningRequest, waits for its certificate
// until ctx ends, and returns the chain, DER, leaf first. The error is a
// [*DecisionError] when the request is denied or fails, a [*PendingError] when
// ctx ends first, and a [*CertificateError] when the certificate is not for the
// request's key and subject, not valid now, or not for the usages.
func (c *Client) RequestCertificate(ctx context.Context, r CertificateRequest) ([][]byte, error) {
	o, err := newSigningRequest(r)
	if err != nil {
		return nil, err
	}
	made, err := c.create(ctx, r, o)
	if err != nil {
		return nil, fmt.Errorf("certificate signing request: %w", err)
	}
	issued, err := c.await(ctx, made)
	if err != nil {
		return nil, err
	}
	return checkCertificate(issued, r.CSR, time.Now())
}

// create makes the object, or finds the one named Once.
func (c *Client) create(ctx context.Context, r CertificateRequest, o *signingRequest) (made signingRequest, err error) {
	told := r.Created
	err = c.post(ctx, requestsPath, o, &made)
	var refused *StatusError
	if r.Once != "" && errors.As(err, &refused) && refused.Code == http.StatusConflict {
		told, made = r.Found, signingRequest{}
		err = c.get(ctx, requestsPath+"/"+url.PathEscape(r.Once), &made)
		if err == nil && !sameRequest(&made, o) {
			err = fmt.Errorf("%s exists already and requests something else", oneLine(r.Once))
		}
	}
	if err == nil && !isName(made.Metadata.Name) {
		err = errors.New("the answer is not an API server's: it has no valid object name")
	}
	if err == nil && told != nil {
		told(made.Metadata.Name)
	}
	return made, err
}

// isName reports whether name can be the name of an object (RFC 1123, as Kubernetes
// reads it). Hints show names in commands that users copy into a shell.
func isName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	return name != "" && len(name) <= 253 && strings.Trim(name, letters+"-.") == "" &&
		strings.Contains(letters, name[:1]) && strings.Contains(letters, name[len(name)-1:])
}

// sameRequest reports whether two objects request a certificate for the same key and
// subject from the same signer.
func sameRequest(a, b *signingRequest) bool {
	x, y := parseRequest(a), parseRequest(b)
	if x == nil || y == nil || a.Spec.SignerName != b.Spec.SignerName {
		return false
	}
	return bytes.Equal(x.RawSubjectPublicKeyInfo, y.RawSubjectPublicKeyInfo) && sameSubject(x.Subject, y.Subject)
}

func parseRequest(o *signingRequest) *x509.CertificateRequest {
	block, _ := pem.Decode(o.Spec.Request)
	if block == nil {
		return nil
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil
	}
	return parsed
}

func newSigningRequest(r CertificateRequest) (*signingRequest, error) {
	switch {
	case r.SignerName == "":
		return nil, errors.New("certificate signing request: no signer is named")
	case r.Lifetime != 0 && r.Lifetime < minLifetime:
		return nil, fmt.Errorf("certificate signing request: a lifetime of %s is shorter than the %s that Kubernetes allows", r.Lifetime, minLifetime)
	}
	o := &signingRequest{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}
	switch {
	case r.Once != "":
		o.Metadata.Name = r.Once
	case r.Name != "":
		o.Metadata.GenerateName = r.Name
	default:
		o.Metadata.GenerateName = "holdfast-"
	}
	o.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: r.CSR})
	o.Spec.SignerName = r.SignerName
	o.Spec.ExpirationSeconds = int64(r.Lifetime / time.Second)
	o.Spec.Usages = []string{"client auth", "digital signature"}
	return o, nil
}

// segment returns the path segment of a name, and an error for a name that would be
// more than one.
func segment(what, name string) (string, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/%?#") {
		return "", fmt.Errorf("%.80q is not the name of a %s", name, what)
	}
	return url.PathEscape(name), nil
}
