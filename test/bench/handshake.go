package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"time"

	"holdfast/test/swtpm"
)

// handshakeRates compares mutual TLS 1.3 handshakes per second whose client key
// is in the TPM. Client and server are in this process.
func handshakeRates(b *bench) {
	server := serverConfig(b)
	ours := handshaker(b, startAgent(b, swtpm.Start(b).Device()).key(b), server)
	straight := handshaker(b, newDirect(b, swtpm.Start(b).Dial), server)
	for _, c := range []struct {
		clients int
		aim     float64
	}{{1, 0.93}, {16, 1.00}} {
		b.Say("handshakes with %d clients", c.clients)
		ratio := b.CompareRates(c.clients, ours, straight)
		b.AtLeast(fmt.Sprintf("handshake_rate_vs_direct_%d", c.clients), ratio, "ratio", c.aim)
	}
}

func serverConfig(b *bench) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	b.Check("server key", err)
	return &tls.Config{
		Certificates:           []tls.Certificate{certificate(b, key, key.Public(), key)},
		ClientAuth:             tls.RequireAnyClientCert, // proves the key; chains are not what is measured
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
	}
}

// handshaker is the side of clients that sign in with key.
func handshaker(b *bench, key crypto.Signer, server *tls.Config) side {
	issuer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	b.Check("issuer key", err)
	config := &tls.Config{
		Certificates:       []tls.Certificate{certificate(b, issuer, key.Public(), key)},
		InsecureSkipVerify: true,
		MinVersion:         tls.VersionTLS13,
	}
	return func(int) error { return handshake(config, server) }
}

func handshake(config, server *tls.Config) error {
	near, far := net.Pipe()
	defer near.Close()
	served := make(chan error, 1)
	go func() {
		defer far.Close()
		served <- tls.Server(far, server).Handshake()
	}()
	if err := tls.Client(near, config).Handshake(); err != nil {
		return err
	}
	return <-served
}

// certificate has issuer certify public and puts key beside it.
func certificate(b *bench, issuer crypto.Signer, public crypto.PublicKey, key crypto.PrivateKey) tls.Certificate {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, issuer)
	b.Check("certificate", err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
