package kube

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CertificateRequests returns what a user has asked for.
func (p *Plane) CertificateRequests(ctx context.Context, user string) []certificatesv1.CertificateSigningRequest {
	list, err := p.client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	var theirs []certificatesv1.CertificateSigningRequest
	for _, csr := range list.Items {
		if csr.Spec.Username == user {
			theirs = append(theirs, csr)
		}
	}
	return theirs
}

// Decide approves or denies a certificate request, as the administrator.
func (p *Plane) Decide(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, how certificatesv1.RequestConditionType) error {
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: how, Status: corev1.ConditionTrue, Reason: "Test", Message: "the test says so",
	})
	_, err := p.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
	return err
}

// IssueFor signs a request that has been approved, as a signer of its own would,
// for whomever u is.
func (p *Plane) IssueFor(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, u User) error {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil {
		return errors.New("the request is not PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	if csr.Status.Certificate, err = p.Authority.Client(u, request.PublicKey, time.Now().Add(10*time.Minute)); err != nil {
		return err
	}
	_, err = p.client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, csr, metav1.UpdateOptions{})
	return err
}
