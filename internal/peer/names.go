package peer

import (
	"cmp"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/internal/proc"

	"golang.org/x/sys/unix"
)

// userDatabaseAge is how long an answer of the user database is cached. Entries of
// the files are cached until the files change.
const userDatabaseAge = 10 * time.Second

// Names translates between numbers and names of users and groups without NSS,
// which loads foreign code into this process and can wait for the network. It
// reads /etc/passwd and /etc/group, and asks io.systemd.UserDatabase about
// entries that are not in them, where systemd offers it. The zero value is ready for use,
// safe for concurrent use, and caches users until /etc/passwd changes.
type Names struct {
	// Passwd, Group and UserDatabase name the files and the socket to ask instead
	// of the usual ones. They must not change once a method has been called.
	Passwd, Group, UserDatabase string

	mu    sync.Mutex
	users userTable            // guarded by mu
	asked map[uint32]askedUser // guarded by mu; answers of the user database
}

// maxNamesFile is the size of the largest /etc/passwd and /etc/group, in bytes.
const maxNamesFile = 16 << 20

// userTable is /etc/passwd as it was at one moment.
type userTable struct {
	version fileVersion
	byUID   map[uint32]string
}

type askedUser struct {
	name string
	when time.Time
}

// fileVersion changes whenever a file does.
type fileVersion struct {
	device, inode uint64
	size          int64
	modified      unix.Timespec
	changed       unix.Timespec
}

// User returns the name of uid, or "" when it has none. Where several names
// share a uid it is the first in /etc/passwd.
func (n *Names) User(uid uint32) string {
	n.mu.Lock()
	n.refresh()
	name, known := n.users.byUID[uid]
	if !known {
		var a askedUser
		a, known = n.asked[uid]
		known = known && time.Since(a.when) < userDatabaseAge
		name = a.name
	}
	n.mu.Unlock()
	if known {
		return name
	}
	return n.ask(uid)
}

// ask asks the user database without the lock: a slow database must not delay
// peers whose names are cached.
func (n *Names) ask(uid uint32) string {
	name, err := n.database().userByUID(uid)
	if err != nil {
		name = "" // an unknown name never grants anything: rules by name do not match
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked == nil || len(n.asked) >= 1024 {
		n.asked = map[uint32]askedUser{}
	}
	n.asked[uid] = askedUser{name: name, when: time.Now()}
	return name
}

// refresh reads /etc/passwd again when it has changed. When it cannot be read, no
// user has a name.
func (n *Names) refresh() {
	version, err := versionOf(cmp.Or(n.Passwd, "/etc/passwd"))
	if err == nil && version == n.users.version {
		return
	}
	n.users, n.asked = userTable{}, nil
	if err != nil {
		return
	}
	entries, err := readEntries(cmp.Or(n.Passwd, "/etc/passwd"), passwdFields)
	if err != nil {
		return
	}
	n.users = userTable{version: version, byUID: map[uint32]string{}}
	for _, e := range entries {
		if _, taken := n.users.byUID[e.id]; !taken {
			n.users.byUID[e.id] = e.name
		}
	}
}

// UID returns the uid of the user called name, and false when there is no such
// user or the sources cannot be read. It caches nothing.
func (n *Names) UID(name string) (uint32, bool) {
	if id, found := lookUp(cmp.Or(n.Passwd, "/etc/passwd"), passwdFields, name); found {
		return id, true
	}
	id, err := n.database().uidByName(name)
	return id, err == nil
}

// GID returns the gid of the group called name, and false when there is no such
// group or the sources cannot be read. It caches nothing.
func (n *Names) GID(name string) (uint32, bool) {
	if id, found := lookUp(cmp.Or(n.Group, "/etc/group"), groupFields, name); found {
		return id, true
	}
	id, err := n.database().gidByName(name)
	return id, err == nil
}

func (n *Names) database() userDatabase {
	return userDatabase{socket: cmp.Or(n.UserDatabase, UserDatabaseSocket)}
}

func lookUp(path string, fields int, name string) (uint32, bool) {
	entries, err := readEntries(path, fields)
	if err != nil {
		return 0, false
	}
	for _, e := range entries {
		if e.name == name {
			return e.id, true
		}
	}
	return 0, false
}

// The number of fields of a line in passwd(5) and group(5).
const (
	passwdFields = 7
	groupFields  = 4
)

// entry is what passwd(5) and group(5) have in common: the first field is the
// name, the third the number.
type entry struct {
	name string
	id   uint32
}

func readEntries(path string, fields int) ([]entry, error) {
	text, err := proc.ReadFile(path, maxNamesFile)
	if err != nil {
		return nil, err
	}
	return parseEntries(string(text), fields), nil
}

// parseEntries reads the well-formed lines and skips the others,
// as the C library does; "+" and "-" lines belong to NIS.
func parseEntries(text string, fields int) []entry {
	var entries []entry
	for line := range strings.Lines(text) {
		parts := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(parts) != fields || !userName(parts[0]) {
			continue
		}
		id, err := strconv.ParseUint(parts[2], 10, 32)
		if err != nil {
			continue
		}
		entries = append(entries, entry{name: parts[0], id: uint32(id)})
	}
	return entries
}

// userName reports whether s can be the name of a user or group in the widest
// sense that systemd takes (systemd.io/USER_NAMES, relaxed mode): it cannot be
// mistaken for a number, an option, several names, or a path.
func userName(s string) bool {
	if s == "" || len(s) > 255 || s == "." || s == ".." || strings.IndexByte("+-~", s[0]) >= 0 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f || strings.IndexByte(":,/", s[i]) >= 0 {
			return false
		}
	}
	return strings.Trim(s, "0123456789") != ""
}

func versionOf(path string) (fileVersion, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileVersion{}, err
	}
	return fileVersion{
		device: uint64(st.Dev), inode: st.Ino, size: st.Size, modified: st.Mtim, changed: st.Ctim,
	}, nil
}
