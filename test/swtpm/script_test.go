package swtpm

import (
	"bytes"
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
