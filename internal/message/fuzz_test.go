package message

import (
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// seed adds the good messages of the given kinds and returns them: a fuzz target
// without seeds fails in samples.
func seed(f *testing.F, wanted ...Kind) []sample {
	f.Helper()
	var list []sample
	for _, s := range samples(f) {
		for _, kind := range wanted {
			if s.kind == kind {
				list = append(list, s)
				f.Add(s.message)
			}
		}
	}
	if len(list) == 0 {
		f.Fatal("no seeds")
	}
	return list
}

func FuzzTLS13(f *testing.F) {
	seed(f, TLS13Client, TLS13Server)
	f.Fuzz(func(t *testing.T, msg []byte) {
		for _, side := range []Side{Client, Server} {
			v, err := ParseTLS13(msg, side, keys.ECDSAP384SHA384)
			if err != nil {
				checkKind(t, err)
				continue
			}
			if len(msg) != 98+len(v.TranscriptHash) || v.Hash.Size() != len(v.TranscriptHash) || v.Side != side {
				t.Errorf("%d bytes taken as %+v", len(msg), v)
			}
		}
	})
}

func FuzzTLS12Client(f *testing.F) {
	public := seed(f, TLS12Client)[0].public
	f.Fuzz(func(t *testing.T, msg []byte) {
		got, err := ParseTLS12Client(msg, public, keys.ECDSAP256SHA256)
		if err != nil {
			checkKind(t, err)
			return
		}
		if msg[0] != clientHello || len(got.ServerChain) == 0 {
			t.Errorf("taken as %+v", got)
		}
	})
}

func FuzzTLS12Server(f *testing.F) {
	seed(f, TLS12Server)
	f.Fuzz(func(t *testing.T, msg []byte) {
		got, err := ParseTLS12Server(msg, keys.RSAPSSSHA256)
		if err != nil {
			checkKind(t, err)
			return
		}
		if len(msg) != 68+len(got.Point) || msg[64] != namedCurve {
			t.Errorf("%d bytes taken as %+v", len(msg), got)
		}
	})
}

func FuzzCertificateRequest(f *testing.F) {
	public := seed(f, CSR)[0].public
	f.Fuzz(func(t *testing.T, msg []byte) {
		if _, err := ParseCertificateRequest(msg, public); err != nil {
			checkKind(t, err)
			return
		}
		if !opensLikeCSR(msg) || !canonical(msg, maxDepth) {
			t.Error("taken, but not canonical")
		}
	})
}

// FuzzPolyglot holds all grammars against one input: at most one takes it.
func FuzzPolyglot(f *testing.F) {
	all := seed(f, kinds...)
	publics := make(map[string]bool)
	for _, s := range all {
		publics[string(s.public)] = true
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		kind, classified := Classify(msg)
		for public := range publics {
			for _, scheme := range []keys.Scheme{keys.ECDSAP256SHA256, keys.ECDSAP384SHA384, keys.RSAPSSSHA256} {
				taken := takenBy(sample{message: msg, public: []byte(public), scheme: scheme})
				if len(taken) > 1 || len(taken) == 1 && (!classified || taken[0] != kind) {
					t.Fatalf("taken as %v, classified as %q", taken, kind)
				}
			}
		}
	})
}

// checkKind holds a refusal to one of the two kinds that there are for it.
func checkKind(t *testing.T, err error) {
	t.Helper()
	if kind := fault.KindOf(err); kind != fault.BadRequest && kind != fault.WrongPurpose {
		t.Errorf("got %v of kind %q", err, kind)
	}
}
