package piv

import (
	"fmt"
	"testing"

	"holdfast/piv/wire"
)

// TestManyReaders: pcscd may report any number of readers, and the scanner watches a
// bounded number.
func TestManyReaders(t *testing.T) {
	s := newScanner(Config{limits: limits{}.usual()})
	defer s.close()
	var list []wire.Reader
	for i := range 3 * maxReaders {
		list = append(list, wire.Reader{Name: fmt.Sprint("reader ", i)})
	}
	s.update(list)
	if n := len(s.readers); n != maxReaders {
		t.Errorf("%d readers are looked after, want %d", n, maxReaders)
	}
}
