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

// Reload reads the directory again, for a person who mended or moved a file. It
// takes effect as a whole: when the directory cannot be read, what was loaded
// before stays. Files that cannot be used are in [Store.Problems] afterwards.
func (s *Store) Reload() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	l := loader{store: s, records: map[id]Record{}, sealed: map[id]Sealed{}}
	l.loadLedger()
	for _, sh := range []shelf{l.keyShelf(), l.sealedShelf()} {
		if err := l.walk(sh); err != nil {
			return fmt.Errorf("load %s: %w", filepath.Base(sh.root), err)
		}
	}
	s.ledger, s.ledgerFault = l.ledger, l.ledgerFault
	slices.SortFunc(l.problems, func(a, b Problem) int { return cmp.Compare(a.Path, b.Path) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records, s.sealed, s.problems = l.records, l.sealed, l.problems
	return nil
}

// loader is one pass over the directory.
type loader struct {
	store       *Store
	ledger      ledger
	ledgerFault error
	records     map[id]Record
	sealed      map[id]Sealed
	problems    []Problem
}

// A shelf is the directory of one kind of record, with a directory of each owner.
type shelf struct {
	root     string
	optional bool                          // it is made with the first record
	is       string                        // what a record is of
	good     func(data []byte) error       // whether a file's content is such a record
	take     func(data []byte, k id) error // keeps such a record, if it is the one of k
}

func (l *loader) keyShelf() shelf {
	return shelf{
		root: l.store.keysPath(), is: "key",
		good: func(data []byte) error { _, err := parse(data); return err },
		take: l.record,
	}
}

// loadLedger goes on without a ledger that cannot be used: keys sign, PINs are
// refused.
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

func (l *loader) walk(sh shelf) error {
	entries, err := os.ReadDir(sh.root)
	if errors.Is(err, fs.ErrNotExist) && sh.optional {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(sh.root, e.Name())
		uid, err := parseUID(e.Name())
		if err == nil {
			err = checkDirectory(path)
		}
		if err != nil {
			l.setAside(Problem{Path: path, Reason: err.Error()})
			continue
		}
		if err := l.owner(sh, path, uid); err != nil {
			return err
		}
	}
	return nil
}

// parseUID reads the name of an owner's directory, which has one form only.
func parseUID(name string) (uint32, error) {
	uid, err := strconv.ParseUint(name, 10, 32)
	if err != nil || strconv.FormatUint(uid, 10) != name {
		return 0, errors.New("the name is not a uid")
	}
	return uint32(uid), nil
}

// owner loads one owner's directory: first out of the way what interrupted
// writes left, because a second name of a record makes it unusable.
func (l *loader) owner(sh shelf, dir string, uid uint32) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			l.leftover(sh, dir, e.Name())
		}
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		l.file(sh, filepath.Join(dir, e.Name()), uid)
	}
	return nil
}

// leftover removes what an interrupted write of ours left. It keeps the previous
// version of a record unless the record itself is good: then it may be all that
// there is.
func (l *loader) leftover(sh shelf, dir, base string) {
	path := filepath.Join(dir, base)
	name, isNew := strings.CutSuffix(base, ".json"+incoming)
	name, isOld := strings.CutSuffix(name, ".json"+outgoing)
	name = strings.TrimPrefix(name, ".")
	info, err := os.Lstat(path)
	if err != nil || !isNew && !isOld || keys.CheckName(name) != nil || !info.Mode().IsRegular() {
		l.setAside(Problem{Path: path, Reason: "not a file of this agent"})
		return
	}
	record := filepath.Join(dir, name+".json")
	if isOld && !l.sameOrGood(sh, path, record) {
		l.setAside(Problem{Path: path, Reason: "the previous version of a record that is missing or cannot be used"})
		return
	}
	if err := clear(l.store.disk, path); err != nil {
		l.setAside(Problem{Path: path, Reason: "left by an interrupted write: " + err.Error()})
	}
}

// sameOrGood reports whether nothing is lost without the file old.
func (l *loader) sameOrGood(sh shelf, old, record string) bool {
	a, errA := os.Lstat(old)
	b, errB := os.Lstat(record)
	if errA == nil && errB == nil && os.SameFile(a, b) {
		return true
	}
	data, err := read(l.store.disk, record, MaxRecord)
	if err == nil {
		err = sh.good(data)
	}
	return err == nil
}

// file loads one record or sets the file aside.
func (l *loader) file(sh shelf, path string, uid uint32) {
	name, isRecord := strings.CutSuffix(filepath.Base(path), ".json")
	if !isRecord || keys.CheckName(name) != nil {
		l.setAside(Problem{Path: path, Reason: "the file's name is not that of a " + sh.is})
		return
	}
	data, err := read(l.store.disk, path, MaxRecord)
	if err == nil {
		err = sh.take(data, id{uid, name})
	}
	if err == nil {
		return
	}
	p := Problem{Path: path, Reason: err.Error()}
	if sh.root == l.store.keysPath() {
		p.Owner, p.Name = uid, name
	}
	l.setAside(p)
}

// record takes the record of a key.
func (l *loader) record(data []byte, k id) error {
	r, err := parse(data)
	if err != nil {
		return err
	}
	if r.Name != k.name || r.Owner.UID != k.owner {
		return fmt.Errorf("the record of key %q of uid %d", r.Name, r.Owner.UID)
	}
	if err := l.newest(k.String(), r.Generation); err != nil {
		return err
	}
	l.records[k] = r
	return nil
}

// newest refuses a record that is older than what the ledger has of that name.
func (l *loader) newest(name string, generation uint64) error {
	if newest := l.ledger.Generations[name]; generation < newest {
		return fmt.Errorf("generation %d, and generation %d was written: somebody put an older file here", generation, newest)
	}
	return nil
}

func (l *loader) setAside(p Problem) { l.problems = append(l.problems, p) }
