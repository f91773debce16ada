package audit

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"holdfast/test/pace"
)

// split returns the lines of a log with their newlines.
func split(data []byte) [][]byte {
	lines := bytes.SplitAfter(data, []byte("\n"))
	return lines[:len(lines)-1]
}

func join(lines [][]byte) []byte { return bytes.Join(lines, nil) }

// rechain rewrites the lines from i on, so that the chain fits again.
func rechain(t *testing.T, lines [][]byte, i int) [][]byte {
	t.Helper()
	l := Log{}
	l.head = start()
	var all [][]byte
	for n, line := range lines {
		r, err := decode(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Fatal(err)
		}
		if n >= i {
			r.Prev, r.Seq = l.head.Head, uint64(n+1)
		}
		text, err := encode(&r)
		if err != nil {
			t.Fatal(err)
		}
		l.head.Head = sum(text)
		all = append(all, append(text, '\n'))
	}
	return all
}

// TestVerifyNamesTheFirstBadLine starts from a good log of ten records.
func TestVerifyNamesTheFirstBadLine(t *testing.T) {
	replace := func(line int, old, new string) func(*testing.T, [][]byte) [][]byte {
		return func(t *testing.T, lines [][]byte) [][]byte {
			lines[line-1] = bytes.Replace(lines[line-1], []byte(old), []byte(new), 1)
			return lines
		}
	}
	zeros, ones := strings.Repeat("0", 64), strings.Repeat("1", 64)
	for _, c := range []struct {
		name   string
		change func(*testing.T, [][]byte) [][]byte
		line   int
		what   string
	}{
		{"a value in the middle", replace(5, `"alice"`, `"mallo"`), 5, whatEdited},
		{"a value in the first", replace(1, `"alice"`, `"mallo"`), 1, whatEdited},
		{"a value in the last", replace(10, `"alice"`, `"mallo"`), 10, whatEdited},
		{"a value before the last", replace(9, `"alice"`, `"mallo"`), 9, whatEdited},
		{"the form only", replace(5, `"alice"`, `"\u0061lice"`), 5, whatEdited},
		{"a space", replace(5, `,"kind"`, `, "kind"`), 5, whatEdited},
		{"a carriage return", replace(5, "}\n", "}\r\n"), 5, whatEdited},
		{"a member more", replace(5, `"kind"`, `"more":1,"kind"`), 5, whatEdited},
		{"the first hash", replace(1, zeros, ones), 1, whatEdited},
		{"a hash in the middle", func(t *testing.T, l [][]byte) [][]byte {
			i := bytes.Index(l[4], []byte(`"prev":"`)) + len(`"prev":"`)
			copy(l[4][i:], ones)
			return l
		}, 5, whatEdited},
		{"a number", replace(5, `"seq":5`, `"seq":4`), 5, whatReordered},
		{"not JSON", replace(5, `{`, `(`), 5, whatEdited},
		{"an empty line", replace(5, `{`, "\n{"), 5, whatEdited},
		{"a long line", replace(5, `{`, strings.Repeat(" ", maxLine)+"{"), 5, whatEdited},
		{"a line removed", func(_ *testing.T, l [][]byte) [][]byte { return append(l[:4], l[5:]...) }, 5, whatRemoved},
		{"the first removed", func(_ *testing.T, l [][]byte) [][]byte { return l[1:] }, 1, whatRemoved},
		{"three removed", func(_ *testing.T, l [][]byte) [][]byte { return append(l[:4], l[7:]...) }, 5, whatRemoved},
		{"two swapped", func(_ *testing.T, l [][]byte) [][]byte { l[4], l[5] = l[5], l[4]; return l }, 5, whatReordered},
		{"one moved to the end", func(_ *testing.T, l [][]byte) [][]byte {
			return append(append(l[:4:4], l[5:]...), l[4])
		}, 5, whatReordered},
		{"one repeated", func(_ *testing.T, l [][]byte) [][]byte {
			return append(append(l[:5:5], l[4]), l[5:]...)
		}, 6, whatReordered},
		{"the last removed", func(_ *testing.T, l [][]byte) [][]byte { return l[:9] }, 10, whatCut},
		{"all removed", func(_ *testing.T, l [][]byte) [][]byte { return nil }, 1, whatCut},
		{"half a line at the end", func(_ *testing.T, l [][]byte) [][]byte {
			l[9] = l[9][:20]
			return l
		}, 10, whatTorn},
		{"the last newline", func(_ *testing.T, l [][]byte) [][]byte {
			l[9] = l[9][:len(l[9])-1]
			return l
		}, 10, whatTorn},
		{"the whole chain rewritten", func(t *testing.T, l [][]byte) [][]byte {
			return rechain(t, replace(5, `"alice"`, `"mallo"`)(t, l), 5)
		}, 10, whatEdited},
		{"a line removed and the chain rewritten", func(t *testing.T, l [][]byte) [][]byte {
			return rechain(t, append(l[:4], l[5:]...), 4)
		}, 10, whatCut},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := written(t, 10)
			wantGood(t, path, 10)
			write(t, path, join(c.change(t, split(read(t, path)))))
			wantFault(t, path, c.line, c.what)
		})
	}
}

// TestTamperAtRandom does each of the four kinds at many places (G18).
func TestTamperAtRandom(t *testing.T) {
	const records = 50
	rounds := pace.Share(40, 250)
	path := written(t, records)
	data := read(t, path)
	rng := rand.New(rand.NewPCG(1, 2))
	for kind, change := range map[string]func([][]byte) []byte{
		"edit": func(l [][]byte) []byte {
			all := join(l)
			all[rng.IntN(len(all))] ^= byte(1 + rng.IntN(255))
			return all
		},
		"remove": func(l [][]byte) []byte {
			i := rng.IntN(len(l) - 1)
			return join(append(l[:i:i], l[i+1:]...))
		},
		"reorder": func(l [][]byte) []byte {
			i := rng.IntN(len(l) - 1)
			j := i + 1 + rng.IntN(len(l)-i-1)
			l[i], l[j] = l[j], l[i]
			return join(l)
		},
		"cut": func(l [][]byte) []byte { all := join(l); return all[:rng.IntN(len(all))] },
	} {
		for range rounds {
			changed := change(split(bytes.Clone(data)))
			write(t, path, changed)
			var f *Fault
			if _, err := verifyFile(path); !errors.As(err, &f) {
				t.Fatalf("%s (%d bytes): %v, want a fault", kind, len(changed), err)
			}
		}
	}
	write(t, path, data)
	wantGood(t, path, records)
}

func TestVerifyNeedsTheAnchor(t *testing.T) {
	path := written(t, 3)
	anchored := read(t, AnchorPath(path))
	if err := os.Remove(AnchorPath(path)); err != nil {
		t.Fatal(err)
	}
	wantFault(t, path, 4, whatAnchor)
	for name, text := range map[string][]byte{
		"empty":     {},
		"a tail":    append(bytes.Clone(anchored), ' '),
		"lower":     bytes.Replace(anchored, []byte(`"seq":3`), []byte(`"seq":-3`), 1),
		"no hash":   []byte(`{"seq":3,"head":"","bytes":10}` + "\n"),
		"no length": []byte(`{"seq":3,"head":"` + strings.Repeat("0", 64) + `","bytes":0}` + "\n"),
	} {
		write(t, AnchorPath(path), text)
		t.Run(name, func(t *testing.T) { wantFault(t, path, 4, whatAnchor) })
	}
	write(t, AnchorPath(path), anchored)
	wantGood(t, path, 3)
}
