package swtpm

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/google/go-tpm/tpm2"
)

// A Fate is what becomes of a command: one of the constants, or a response
// code, such as Fate(tpm2.TPMRCRetry), that is answered in the TPM's place.
type Fate int64

// The fates that are not response codes.
const (
	Pass       Fate = 0  // the TPM answers
	DropBefore Fate = -1 // the connection is cut and the TPM never sees the command
	DropAfter  Fate = -2 // the TPM has done it, and the connection is cut before the reply
)

// A Script decides the fate of each client command; n counts from 0. The
// resource manager's own commands are not its business. It runs on the proxy's
// goroutines, one call at a time.
type Script func(n int, cc tpm2.TPMCC) Fate

// At gives the command number n, counted from 0, the fate f.
func At(n int, f Fate) Script {
	return func(i int, _ tpm2.TPMCC) Fate {
		if i == n {
			return f
		}
		return Pass
	}
}

// First gives the first n commands cc the fate f.
func First(n int, cc tpm2.TPMCC, f Fate) Script {
	var seen atomic.Int64
	return func(_ int, got tpm2.TPMCC) Fate {
		if got == cc && seen.Add(1) <= int64(n) {
			return f
		}
		return Pass
	}
}

// Always gives every command cc the fate f.
func Always(cc tpm2.TPMCC, f Fate) Script {
	return func(_ int, got tpm2.TPMCC) Fate {
		if got == cc {
			return f
		}
		return Pass
	}
}

// Damage returns reply as a faulty bus or an interposer might deliver it: with
// one to eight bits flipped, cut short, with bytes added, or as an error with a
// random response code. Where the length changes, half of the time the header
// agrees with it, so that a reader gets past the frame. reply is not kept.
func Damage(r *rand.Rand, reply []byte) []byte {
	m := append([]byte(nil), reply...)
	switch r.IntN(4) {
	case 0:
		for range 1 + r.IntN(8) {
			m[r.IntN(len(m))] ^= 1 << r.IntN(8)
		}
		return m
	case 1:
		return resize(r, m[:r.IntN(len(m))])
	case 2:
		for range 1 + r.IntN(64) {
			m = append(m, byte(r.Uint32()))
		}
		return resize(r, m)
	default:
		return build(tpm2.TPMSTNoSessions, 1+r.Uint32N(1<<12), nil)
	}
}

// resize makes the header of every second message tell its true length.
func resize(r *rand.Rand, m []byte) []byte {
	if len(m) >= 6 && r.IntN(2) == 0 {
		m[2], m[3], m[4], m[5] = byte(len(m)>>24), byte(len(m)>>16), byte(len(m)>>8), byte(len(m))
	}
	return m
}
