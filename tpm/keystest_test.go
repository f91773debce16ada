package tpm_test

import (
	"context"
	"testing"

	"holdfast/internal/keys"
	"holdfast/internal/keys/keystest"
	"holdfast/test/swtpm"
	"holdfast/tpm"
)

// swtpmKeys is what the tests make on swtpm. RSA-3072 works too and takes
// seconds; TestCan asks for it.
var swtpmKeys = []keys.Capability{
	{Algorithm: keys.ES256}, {Algorithm: keys.ES384}, {Algorithm: keys.RS256, RSABits: 2048},
}

// swtpm locks after three wrong authorisations; the last one is not ours.
const swtpmWrongPINs = 2

// TestKeystestSwtpm: the suite on a TPM of the strictest kind, with three places
// for keys, three for sessions, and no resource manager that swaps them.
func TestKeystestSwtpm(t *testing.T) {
	keystest.Run(t, func(t *testing.T) keystest.Harness {
		device := swtpm.Start(t)
		return harness(device, func(t *testing.T) keys.Backend {
			return openTPM(t, tpm.Config{Device: device.Device()})
		}, func(t *testing.T) keys.Backend {
			return openTPM(t, tpm.Config{Device: swtpm.Start(t).Device()})
		})
	})
}

// TestKeystestManaged: the suite behind a resource manager like the kernel's.
func TestKeystestManaged(t *testing.T) {
	keystest.Run(t, func(t *testing.T) keystest.Harness {
		device := swtpm.Start(t)
		proxy := swtpm.NewProxy(t, device, swtpm.Options{ResourceManager: true})
		return harness(device, func(t *testing.T) keys.Backend {
			return openTPM(t, managed(proxy))
		}, func(t *testing.T) keys.Backend {
			return openTPM(t, managed(swtpm.NewProxy(t, swtpm.Start(t), swtpm.Options{ResourceManager: true})))
		})
	})
}

func harness(device *swtpm.TPM, open, other func(*testing.T) keys.Backend) keystest.Harness {
	return keystest.Harness{
		Open: open, Other: other, Can: swtpmKeys, Slots: 3, WrongPINs: swtpmWrongPINs, Persistent: true, Seals: true,
		Stall: func(*testing.T) func() { device.Stop(); return device.Cont },
	}
}

// managed configures the backend for a proxy as if it were /dev/tpmrm0.
func managed(p *swtpm.Proxy) tpm.Config {
	return tpm.Config{
		Device:          p.Device(),
		Dial:            func(context.Context) (tpm.Conn, error) { return p.Dial() },
		ResourceManager: true,
	}
}

func openTPM(t *testing.T, c tpm.Config) keys.Backend {
	t.Helper()
	b, err := tpm.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}
