package store

import (
	"os"
	"path/filepath"
	"testing"

	"holdfast/internal/keys"
)

// records returns the record files of past releases.
func records(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("testdata has the records %q (%v), want one of each algorithm at least", files, err)
	}
	all := map[string][]byte{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = data
	}
	return all
}

// TestRecordsOfPastReleases: what a release wrote, every later one reads. These
// files are never written again.
func TestRecordsOfPastReleases(t *testing.T) {
	dir := fresh(t)
	open(t, dir).Close()
	algorithms := map[keys.Algorithm]bool{}
	for name, data := range records(t) {
		place(t, dir, name, data)
	}
	s := open(t, dir)
	clean(t, s)
	for _, r := range s.List() {
		algorithms[r.Algorithm] = true
	}
	card, _ := s.Get(1000, "es256-card")
	if c, p := card.Confirm, card.Material.Card; c == nil || *c != (Confirm{OncePerProcess, 5}) || p == nil || p.String() != "card 12345678, slot 9a" {
		t.Errorf("the key on a card is confirmed %+v and on %+v, want per process for 5 minutes, on slot 9a", c, p)
	}
	if plain, ok := s.Get(1000, "es256"); !ok || plain.Confirm != nil || plain.Material.Card != nil {
		t.Errorf("a record from before there were cards reads as %+v", plain)
	}
	if len(algorithms) != len(keys.Algorithms()) {
		t.Errorf("algorithms %v, want all", algorithms)
	}
}
