package swtpm

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/google/go-tpm/tpm2"
)

func TestDamageIsVaried(t *testing.T) {
	reply := build(tpm2.TPMSTNoSessions, 0, []any{uint64(1), uint64(2)})
	want := bytes.Clone(reply)
	r := rand.New(rand.NewPCG(1, 2))
	kinds := map[string]int{}
	for range 1000 {
		m := Damage(r, reply)
		switch {
		case len(m) == 10 && codeOf(m) != 0:
			kinds["code"]++
		case len(m) < len(reply):
			kinds["short"]++
		case len(m) > len(reply):
			kinds["long"]++
		case !bytes.Equal(m, reply):
			kinds["bits"]++
		}
	}
	for _, k := range []string{"code", "short", "long", "bits"} {
		if kinds[k] < 100 {
			t.Errorf("%s: got %d of 1000, want at least 100", k, kinds[k])
		}
	}
	if !bytes.Equal(reply, want) {
		t.Error("Damage has changed its argument")
	}
}

func TestReadMessageBounds(t *testing.T) {
	for name, m := range map[string][]byte{
		"shorter than its header": {0x80, 1, 0, 0, 0, 9, 0, 0, 0, 0},
		"longer than any reply":   {0x80, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"cut short":               {0x80, 1, 0, 0, 0, 11, 0, 0, 0, 0},
	} {
		if got, err := readMessage(bytes.NewReader(m)); err == nil {
			t.Errorf("%s: got %x, want an error", name, got)
		}
	}
}

// FuzzReadMessage: whatever bytes come, a message is as long as it says, or there
// is none.
func FuzzReadMessage(f *testing.F) {
	seeds := [][]byte{
		message(tpm2.TPMCCGetTestResult),
		capability(tpm2.TPMCapHandles, 0x80000000, 254),
		withPassword(tpm2.TPMCCClear, tpm2.TPMRHLockout),
		build(tpm2.TPMSTNoSessions, uint32(tpm2.TPMRCRetry), nil),
		{0x80, 1, 0, 0, 0, 9, 0, 0, 0, 0},
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := readMessage(bytes.NewReader(text))
		if err != nil {
			return
		}
		if got := int(binary.BigEndian.Uint32(m[2:])); got != len(m) || !bytes.HasPrefix(text, m) {
			t.Errorf("got %d bytes that say %d", len(m), got)
		}
	})
}
