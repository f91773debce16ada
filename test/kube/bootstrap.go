package kube

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BootstrapToken makes a bootstrap token, valid for an hour. Its group may ask
// for certificates and do nothing else (ClusterRole system:node-bootstrapper).
func (p *Plane) BootstrapToken() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), ReadyTimeout)
	defer cancel()
	raw := make([]byte, 11)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	id, secret := hex.EncodeToString(raw[:3]), hex.EncodeToString(raw[3:])
	_, err := p.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
			"expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	group := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:bootstrappers"}
	return id + "." + secret, p.Bind("bootstrap-"+id, "system:node-bootstrapper", group)
}

// Bind gives subjects a ClusterRole, in the whole cluster.
func (p *Plane) Bind(name, role string, subjects ...rbacv1.Subject) error {
	ctx, cancel := context.WithTimeout(context.Background(), ReadyTimeout)
	defer cancel()
	_, err := p.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}, metav1.CreateOptions{})
	return err
}

// BindUser gives a user a ClusterRole, in the whole cluster.
func (p *Plane) BindUser(user, role string) error {
	return p.Bind(user+"-"+role, role, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
}

// ApproveNodes lets kube-controller-manager approve what nodes ask for: renewals
// by nodes themselves, and first certificates by bootstrappers.
func (p *Plane) ApproveNodes() error {
	nodes := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}
	if err := p.Bind("renew-nodes", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", nodes); err != nil {
		return err
	}
	bootstrappers := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:bootstrappers"}
	return p.Bind("approve-nodes", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", bootstrappers)
}
