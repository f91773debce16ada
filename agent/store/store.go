// Package store keeps key records and sealed secrets on disk, one JSON file each at
// DIR/keys/<uid of the owner>/<name>.json and DIR/sealed/<uid>/<name>.json. A key
// that was acknowledged survives a crash, kill -9, a power cut and a full disk at
// any instant. A file that is not exactly as the store wrote it is not used.
//
// Start at [Open], [Record] and [Sealed]. Both kinds are kept by one shelf. A file
// that cannot be used is set aside in its place: [Store.Problems] lists it with the
// reason, its key does not exist for the agent, and its name stays taken until a
// user has moved the file. The store never deletes a file that it did not make or
// that may hold a key.
//
// The directory is the agent's own, mode 0700. The store does not protect against
// root or against other programs of the agent's uid: they can replace the directory
// with an older one, which only a device's view of a key reveals. Records hold no
// usable secret.
package store

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"holdfast/internal/lockfile"
)

// Store is the keys in one state directory, which it holds alone. Its methods
// are safe for concurrent use; reading does not wait for the disk.
type Store struct {
	dir  string
	disk disk
	lock *os.File
	now  func() time.Time

	writing     sync.Mutex // held while the directory is changed, and guards the next two; taken before mu
	ledger      ledger
	ledgerFault error // the reason why the ledger cannot be used

	mu       sync.RWMutex // guards the records in keys and sealed, and problems
	keys     shelf[Record]
	sealed   shelf[Sealed]
	problems []Problem
}

// Problem is a file that is not used.
type Problem struct {
	Path   string
	Reason string
}

// Open takes the state directory dir, makes it when it is missing, and loads
// every record. It rejects a directory that another uid owns or that others can
// enter, and one that another process has open ("already running pid N"). Files
// that cannot be used do not make it fail: see [Store.Problems]. It removes only
// leftovers of the store's own interrupted writes.
func Open(dir string) (*Store, error) { return openOn(system{}, dir) }

func openOn(d disk, dir string) (*Store, error) {
	s := &Store{dir: dir, disk: d, now: time.Now}
	if err := s.prepare(); err != nil {
		return nil, fmt.Errorf("state directory %s: %w", dir, err)
	}
	if err := s.Reload(); err != nil {
		s.lock.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) prepare() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	// systemd makes /var/lib/NAME a link into /var/lib/private: the checks apply
	// to the directory itself.
	real, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		return err
	}
	s.dir = real
	if err := checkDirectory(s.dir); err != nil {
		return err
	}
	if s.lock, err = lockfile.Take(filepath.Join(s.dir, "lock")); err != nil {
		return err
	}
	s.keys = shelf[Record]{store: s, root: filepath.Join(s.dir, "keys"), kind: "key", keys: true, parse: parse}
	s.sealed = shelf[Sealed]{store: s, root: filepath.Join(s.dir, "sealed"), kind: "sealed secret", prefix: "sealed/", parse: parseSealed}
	if err := s.makeDirectory(s.keys.root); err != nil {
		s.lock.Close()
		return err
	}
	return nil
}

// makeDirectory makes a directory unless it exists, and checks that it is ours.
func (s *Store) makeDirectory(path string) error {
	if !exists(path) {
		if err := s.disk.mkdir(path); err != nil {
			return err
		}
		if err := syncDirectory(s.disk, filepath.Dir(path)); err != nil {
			return err
		}
	}
	if err := checkDirectory(path); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Close releases the directory.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.lock.Truncate(0)
	return s.lock.Close()
}

// Get returns a copy of the record of the key that owner calls name.
func (s *Store) Get(owner uint32, name string) (Record, bool) {
	r, ok := s.keys.get(id{owner, name})
	return r.clone(), ok
}

// List returns copies of all records, sorted by owner and name.
func (s *Store) List() []Record {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]Record, 0, len(s.keys.records))
	for _, r := range s.keys.records {
		list = append(list, r.clone())
	}
	slices.SortFunc(list, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Owner.UID, b.Owner.UID), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// Problems returns the files that are set aside, sorted by path.
func (s *Store) Problems() []Problem {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.problems)
}
