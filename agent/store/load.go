package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holdfast/internal/keys"
)

// Reload reads the directory again, after a user has repaired or moved a file. It
// takes effect as a whole: when the directory cannot be read, the loaded records
// stay. Files that cannot be used are in [Store.Problems] afterwards.
func (s *Store) Reload() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	l := loader{store: s}
	l.loadLedger()
	keys, err := load(&l, &s.keys)
	if err != nil {
		return err
	}
	sealed, err := load(&l, &s.sealed)
	if err != nil {
		return err
	}
	s.ledger, s.ledgerFault = l.ledger, l.ledgerFault
	slices.SortFunc(l.problems, func(a, b Problem) int { return cmp.Compare(a.Path, b.Path) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys.records, s.sealed.records, s.problems = keys, sealed, l.problems
	return nil
}

// loader is one pass over the directory.
type loader struct {
	store       *Store
	ledger      ledger
	ledgerFault error
	problems    []Problem
}

// walk is the part of a pass over the directory that loads one shelf.
type walk[R record[R]] struct {
	*loader
	shelf   *shelf[R]
	records map[id]R
}

// load returns the usable records of a shelf.
func load[R record[R]](l *loader, h *shelf[R]) (map[id]R, error) {
	w := walk[R]{l, h, map[id]R{}}
	if err := w.owners(); err != nil {
		return nil, fmt.Errorf("load %s: %w", filepath.Base(h.root), err)
	}
	return w.records, nil
}

// loadLedger continues without a ledger that cannot be used: keys sign, and PINs
// are rejected.
func (l *loader) loadLedger() {
	path := l.store.ledgerPath()
	clear(l.store.disk, sibling(path, incoming))
	if exists(path) {
		clear(l.store.disk, sibling(path, outgoing))
	}
	if l.ledger, l.ledgerFault = l.store.readLedger(); l.ledgerFault != nil {
		l.ledgerFault = fmt.Errorf("%s: %w", path, l.ledgerFault)
		l.setAside(Problem{Path: path, Reason: "no PIN can be tried: " + l.ledgerFault.Error()})
	}
}

// owners loads the directory of each owner.
func (w *walk[R]) owners() error {
	entries, err := os.ReadDir(w.shelf.root)
	if errors.Is(err, fs.ErrNotExist) && !w.shelf.keys {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(w.shelf.root, e.Name())
		uid, err := parseUID(e.Name())
		if err == nil {
			err = checkDirectory(path)
		}
		if err != nil {
			w.setAside(Problem{Path: path, Reason: err.Error()})
			continue
		}
		if err := w.owner(path, uid); err != nil {
			return err
		}
	}
	return nil
}

// parseUID parses the name of an owner's directory, which has only one valid form.
func parseUID(name string) (uint32, error) {
	uid, err := strconv.ParseUint(name, 10, 32)
	if err != nil || strconv.FormatUint(uid, 10) != name {
		return 0, errors.New("the name is not a uid")
	}
	return uint32(uid), nil
}

// owner loads one owner's directory. It removes the leftovers of interrupted writes
// first, because a second hard link makes a record unusable.
func (w *walk[R]) owner(dir string, uid uint32) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			w.leftover(dir, e.Name())
		}
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		w.file(filepath.Join(dir, e.Name()), uid)
	}
	return nil
}

// leftover removes the file that an interrupted write of ours left. It keeps the
// previous version of a record unless the record itself is good: the previous
// version may be the only copy.
func (w *walk[R]) leftover(dir, base string) {
	path := filepath.Join(dir, base)
	name, isNew := strings.CutSuffix(base, ".json"+incoming)
	name, isOld := strings.CutSuffix(name, ".json"+outgoing)
	name = strings.TrimPrefix(name, ".")
	info, err := os.Lstat(path)
	if err != nil || !isNew && !isOld || keys.CheckName(name) != nil || !info.Mode().IsRegular() {
		w.setAside(Problem{Path: path, Reason: "not a file of this agent"})
		return
	}
	record := filepath.Join(dir, name+".json")
	if isOld && !w.sameOrGood(path, record) {
		w.setAside(Problem{Path: path, Reason: "the previous version of a record that is missing or cannot be used"})
		return
	}
	if err := clear(w.store.disk, path); err != nil {
		w.setAside(Problem{Path: path, Reason: "left by an interrupted write: " + err.Error()})
	}
}

// sameOrGood reports whether the file old can be removed without loss.
func (w *walk[R]) sameOrGood(old, record string) bool {
	a, errA := os.Lstat(old)
	b, errB := os.Lstat(record)
	if errA == nil && errB == nil && os.SameFile(a, b) {
		return true
	}
	data, err := read(w.store.disk, record, MaxRecord)
	if err == nil {
		_, err = w.shelf.parse(data)
	}
	return err == nil
}

// file loads one record or sets the file aside.
func (w *walk[R]) file(path string, uid uint32) {
	name, isRecord := strings.CutSuffix(filepath.Base(path), ".json")
	if !isRecord || keys.CheckName(name) != nil {
		w.setAside(Problem{Path: path, Reason: "the file's name is not that of a " + w.shelf.kind})
		return
	}
	data, err := read(w.store.disk, path, MaxRecord)
	if err == nil {
		err = w.take(data, id{uid, name})
	}
	if err != nil {
		w.setAside(Problem{Path: path, Reason: err.Error()})
	}
}

// take keeps the record in data if it is that of k and the newest.
func (w *walk[R]) take(data []byte, k id) error {
	r, err := w.shelf.parse(data)
	if err != nil {
		return err
	}
	if got := r.id(); got != k {
		return fmt.Errorf("the record of %s %q of uid %d", w.shelf.kind, got.name, got.owner)
	}
	if err := w.newest(w.shelf.ledgerName(k), r.generation()); err != nil {
		return err
	}
	w.records[k] = r
	return nil
}

// newest rejects a record that is older than the ledger's generation of that name.
func (l *loader) newest(name string, generation uint64) error {
	if newest := l.ledger.Generations[name]; generation < newest {
		return fmt.Errorf("generation %d, and generation %d was written: an older file was put here", generation, newest)
	}
	return nil
}

func (l *loader) setAside(p Problem) { l.problems = append(l.problems, p) }
