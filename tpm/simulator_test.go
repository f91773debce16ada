package tpm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-tpm-tools/simulator"
	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/keys/keystest"
	"holdfast/test/swtpm"
	"holdfast/tpm"
)

// A chip is Microsoft's reference TPM inside this process. There can be one at
// a time: the code has its state in global variables.
type chip struct {
	mu     sync.Mutex
	device *simulator.Simulator
	signed [][]byte              // the replies to TPM2_Sign so far
	forge  func([][]byte) []byte // answers TPM2_Sign in the device's place; nil: the device does
}

func newChip(t *testing.T) *chip {
	t.Helper()
	device, err := simulator.Get()
	if err != nil {
		t.Fatal(err)
	}
	c := &chip{device: device}
	t.Cleanup(func() { device.Close() })
	return c
}

// swap puts another TPM in the chip's place.
func (c *chip) swap(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.device.ManufactureReset(); err != nil {
		t.Fatal(err)
	}
}

func (c *chip) config() tpm.Config {
	return tpm.Config{Device: "swtpm:simulator", Dial: func(context.Context) (tpm.Conn, error) { return chipConn{c}, nil }}
}

// A chipConn is a tpm.Conn to a chip. Its commands cannot be interrupted; none
// takes long.
type chipConn struct{ *chip }

func (c chipConn) Exchange(ctx context.Context, command, reply []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	sign := tpm2.TPMCC(binary.BigEndian.Uint32(command[6:])) == tpm2.TPMCCSign
	if sign && c.forge != nil {
		return copy(reply, c.forge(c.signed)), nil
	}
	if _, err := c.device.Write(command); err != nil {
		return 0, err
	}
	n, err := c.device.Read(reply)
	if sign && err == nil {
		c.signed = append(c.signed, bytes.Clone(reply[:n]))
	}
	return n, err
}

func (chipConn) Close() error { return nil }

// TestKeystestSimulator: the suite on the reference implementation.
func TestKeystestSimulator(t *testing.T) {
	keystest.Run(t, func(t *testing.T) keystest.Harness {
		c := newChip(t)
		return keystest.Harness{
			Open: func(t *testing.T) keys.Backend { return openTPM(t, c.config()) },
			Other: func(t *testing.T) keys.Backend {
				c.swap(t)
				return openTPM(t, c.config())
			},
			Can: swtpmKeys, Slots: 3, WrongPINs: swtpmWrongPINs, Persistent: true,
		}
	})
}

// mutants is how many damaged replies TestDamagedReplies makes up; more with
// -mutants.
var mutants = flag.Int("mutants", 25_000, "damaged replies to TPM2_Sign")

// A tally counts what became of damaged replies.
type tally struct{ replies, refused, caught, verified int }

// TestDamagedReplies: whatever comes back from the device in place of a
// signature, Sign returns an error, or something that verification finds out,
// or a true signature all the same. It never panics, and the key goes on
// signing afterwards. The test damages real replies of the device, which signs
// again from time to time and executes all other commands.
func TestDamagedReplies(t *testing.T) {
	c := newChip(t)
	b := openTPM(t, c.config())
	m, err := b.Create(t.Context(), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256})
	if err != nil {
		t.Fatal(err)
	}
	seed, start := rand.Uint64(), time.Now()
	r := rand.New(rand.NewPCG(seed, 0))
	var got tally
	damage := func(signed [][]byte) []byte {
		got.replies++
		return swtpm.Damage(r, signed[r.IntN(len(signed))])
	}
	for i := 0; got.replies < *mutants; i++ {
		if i%100 == 0 {
			c.setForge(nil)
			if err := trySign(t, b, m); err != nil {
				t.Fatalf("seed %d: an undamaged signature after %d damaged ones: %v", seed, i, err)
			}
			c.setForge(damage)
		}
		got.note(t, seed, trySign(t, b, m))
	}
	t.Logf("seed %d: %d damaged replies in %v: %d errors, %d caught by verification, %d true signatures",
		seed, got.replies, time.Since(start).Round(time.Millisecond), got.refused, got.caught, got.verified)
	if got.refused == 0 || got.caught == 0 {
		t.Errorf("got %+v, want some of each kind: was anything damaged?", got)
	}
}

func (c *chip) setForge(f func([][]byte) []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forge = f
}

func (y *tally) note(t *testing.T, seed uint64, err error) {
	t.Helper()
	var e *fault.Error
	switch {
	case err == nil:
		y.verified++
	case !errors.As(err, &e):
		t.Errorf("seed %d, reply %d: got %v, want a keys.Error", seed, y.replies, err)
	case e.Kind == fault.KeyMismatch:
		y.caught++
	default:
		y.refused++
	}
}

// trySign has m sign as the agent does: what does not verify is key-mismatch.
func trySign(t *testing.T, b keys.Backend, m keys.Material) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	digest := make([]byte, 32) // the same each time: a true reply stays true
	signature, err := b.Sign(ctx, m, keys.ECDSAP256SHA256, digest)
	if err != nil {
		return err
	}
	public, err := keys.ParsePublic(m.Public)
	if err != nil {
		t.Fatal(err)
	}
	return keys.Verify(public, keys.ECDSAP256SHA256, digest, signature)
}
