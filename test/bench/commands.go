package main

import (
	"context"
	"crypto/sha256"
	"time"

	"holdfast/internal/keys"
	"holdfast/test/swtpm"
	"holdfast/tpm"
)

// commandsPerSignature counts what the TPM is given for one signature in the
// steady state, behind a resource manager that behaves like the kernel's. The
// PIN's line is for a persistent key that was unlocked before.
func commandsPerSignature(b *bench) {
	pin := []byte("not a secret")
	for _, c := range []struct {
		name     string
		template keys.Template
		aim      float64
	}{
		{"persistent", keys.Template{Persistent: true}, 1},
		{"transient", keys.Template{}, 4},
		{"pin", keys.Template{Persistent: true, PIN: pin}, 3},
	} {
		c.template.Algorithm, c.template.Purpose = keys.ES256, keys.TLSClient
		b.AtMost("tpm_commands_per_signature_"+c.name, countCommands(b, c.template), "commands", c.aim)
	}
}

func countCommands(b *bench, t keys.Template) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	p := swtpm.NewProxy(b, swtpm.Start(b), swtpm.Options{ResourceManager: true})
	backend, err := tpm.Open(tpm.Config{
		Device: p.Device(), Dial: func(context.Context) (tpm.Conn, error) { return p.Dial() }, ResourceManager: true,
	})
	b.Check("tpm.Open", err)
	b.Cleanup(func() { backend.Close() })
	m, err := backend.Create(ctx, t)
	b.Check("create", err)
	b.Check("persist", backend.Persist(ctx, m))
	if len(t.PIN) > 0 {
		b.Check("unlock", backend.Unlock(ctx, m, t.PIN, time.Now().Add(time.Hour)))
	}
	digest := sha256.Sum256(clientMessage())
	const steady = 10
	for i := range 3 + steady {
		if i == 3 {
			p.ResetCounts()
		}
		_, err := backend.Sign(ctx, m, keys.ECDSAP256SHA256, digest[:])
		b.Check("sign", err)
	}
	return float64(p.Total()) / steady
}
