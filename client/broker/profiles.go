package broker

import (
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/client/profile"
)

// A profileCache holds the profiles of a directory, and reads it again when it has
// changed: each use checks that, with two system calls.
type profileCache struct {
	dir     string
	changed func(name string) // called for a profile that has changed or is gone

	reading sync.Mutex // held while the directory is read: one at a time

	mu       sync.Mutex // guards what follows
	stamps   map[string]stamp
	read     time.Time
	profiles map[string]*profile.Profile
	faults   map[string]error // of files; the previous profile stays in use
	broken   error            // of the directory
}

// stamp tells a file or directory from one that was changed since.
type stamp struct {
	device, inode    uint64
	size             int64
	modified, status unix.Timespec
}

func stampOf(path string) stamp {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return stamp{} // a missing file's stamp equals no other
	}
	return stamp{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}
}

// settling is how long after a change another one may carry the same time: file
// systems take theirs from the kernel's tick.
const settling = 50 * time.Millisecond

func newProfileCache(dir string, changed func(string)) *profileCache {
	s := &profileCache{dir: dir, changed: changed}
	s.reload()
	return s
}

// get returns a profile as it is now.
func (s *profileCache) get(name string) (*profile.Profile, bool) {
	if s.stale(name) {
		s.reload()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.profiles[name]
	return p, ok
}

// fault returns why the file of a profile cannot be used.
func (s *profileCache) fault(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults[name]
}

// list returns every profile, the faults of files by name, and that of the
// directory.
func (s *profileCache) list() (map[string]*profile.Profile, map[string]error, error) {
	if s.stale("") {
		s.reload()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profiles, s.faults, s.broken // never written to: reload makes new ones
}

// stale reports whether the directory, or the file of the named profile, or of any
// when name is empty, has changed since it was read.
func (s *profileCache) stale(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stampOf(s.dir) != s.stamps[""] {
		return true
	}
	for each, before := range s.stamps {
		if each == "" || name != "" && each != name {
			continue
		}
		if stampOf(s.file(each)) != before {
			return true
		}
	}
	return s.unsettled()
}

// unsettled reports whether something had changed so shortly before it was read
// that a change after it could look the same. The caller holds mu.
func (s *profileCache) unsettled() bool {
	since := time.Since(s.read)
	if since < settling {
		return false // a later call reads it again
	}
	for _, st := range s.stamps {
		if before := s.read.Sub(time.Unix(st.status.Unix())); before < settling {
			return true
		}
	}
	return false
}

func (s *profileCache) file(name string) string { return filepath.Join(s.dir, name+".yaml") }

// reload reads the directory again. A file with a fault leaves the previous
// profile in use; a directory that cannot be read leaves all.
func (s *profileCache) reload() {
	s.reading.Lock()
	defer s.reading.Unlock()
	now, stamps := time.Now(), s.stampAll()
	loaded, faults, err := profile.Load(s.dir)
	s.mu.Lock()
	old := s.profiles
	s.stamps, s.read, s.broken = stamps, now, err
	if err != nil {
		s.mu.Unlock()
		return
	}
	for name := range faults {
		if before := old[name]; before != nil {
			loaded[name] = before
		}
	}
	s.profiles, s.faults = loaded, faults
	s.mu.Unlock()
	for name, before := range old {
		if !reflect.DeepEqual(before, loaded[name]) {
			s.changed(name)
		}
	}
}

// stampAll is called before the files are read, so that a change in between is
// seen the next time.
func (s *profileCache) stampAll() map[string]stamp {
	stamps := map[string]stamp{"": stampOf(s.dir)}
	entries, _ := os.ReadDir(s.dir) // profile.Load returns the error
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext == ".yaml" {
			name := e.Name()[:len(e.Name())-len(ext)]
			if name != "" {
				stamps[name] = stampOf(s.file(name))
			}
		}
	}
	return stamps
}
