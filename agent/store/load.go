package store

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holdfast/agent/keys"
)

// Reload reads the directory again, for a person who mended or moved a file. It
// takes effect as a whole: when the directory cannot be read, what was loaded
// before stays. Files that cannot be used are in [Store.Problems] afterwards.
func (s *Store) Reload() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	l := loader{store: s, records: map[id]Record{}}
	l.loadLedger()
	if err := l.walk(); err != nil {
		return fmt.Errorf("load keys: %w", err)
	}
	s.ledger, s.ledgerFault = l.ledger, l.ledgerFault
	slices.SortFunc(l.problems, func(a, b Problem) int { return cmp.Compare(a.Path, b.Path) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records, s.problems = l.records, l.problems
	return nil
}

// loader is one pass over the directory.
type loader struct {
	store       *Store
	ledger      ledger
	ledgerFault error
	records     map[id]Record
	problems    []Problem
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

func (l *loader) walk() error {
	entries, err := os.ReadDir(l.store.keysPath())
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(l.store.keysPath(), e.Name())
		uid, err := parseUID(e.Name())
		if err == nil {
			err = checkDirectory(path)
		}
		if err != nil {
			l.setAside(Problem{Path: path, Reason: err.Error()})
			continue
		}
		if err := l.owner(path, uid); err != nil {
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
func (l *loader) owner(dir string, uid uint32) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			l.leftover(dir, e.Name())
		}
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		l.file(filepath.Join(dir, e.Name()), uid)
	}
	return nil
}

// leftover removes what an interrupted write of ours left. It keeps the previous
// version of a record unless the record itself is good: then it may be all that
// there is.
func (l *loader) leftover(dir, base string) {
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
	if isOld && !l.sameOrGood(path, record) {
		l.setAside(Problem{Path: path, Reason: "the previous version of a record that is missing or cannot be used"})
		return
	}
	if err := clear(l.store.disk, path); err != nil {
		l.setAside(Problem{Path: path, Reason: "left by an interrupted write: " + err.Error()})
	}
}

// sameOrGood reports whether nothing is lost without the file old.
func (l *loader) sameOrGood(old, record string) bool {
	a, errA := os.Lstat(old)
	b, errB := os.Lstat(record)
	if errA == nil && errB == nil && os.SameFile(a, b) {
		return true
	}
	data, err := read(l.store.disk, record, MaxRecord)
	if err == nil {
		_, err = parse(data)
	}
	return err == nil
}

// file loads one record or sets the file aside.
func (l *loader) file(path string, uid uint32) {
	name, isRecord := strings.CutSuffix(filepath.Base(path), ".json")
	if !isRecord || keys.CheckName(name) != nil {
		l.setAside(Problem{Path: path, Reason: "the file's name is not that of a key"})
		return
	}
	r, err := l.record(path, id{uid, name})
	if err != nil {
		l.setAside(Problem{Path: path, Reason: err.Error(), Owner: uid, Name: name})
		return
	}
	l.records[id{uid, name}] = r
}

func (l *loader) record(path string, k id) (Record, error) {
	data, err := read(l.store.disk, path, MaxRecord)
	if err != nil {
		return Record{}, err
	}
	r, err := parse(data)
	if err != nil {
		return Record{}, err
	}
	if r.Name != k.name || r.Owner.UID != k.owner {
		return Record{}, fmt.Errorf("the record of key %q of uid %d", r.Name, r.Owner.UID)
	}
	if newest := l.ledger.Generations[k.String()]; r.Generation < newest {
		return Record{}, fmt.Errorf("generation %d, and generation %d was written: somebody put an older file here", r.Generation, newest)
	}
	return r, nil
}

func (l *loader) setAside(p Problem) { l.problems = append(l.problems, p) }
