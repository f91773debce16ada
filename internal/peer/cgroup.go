package peer

import (
	"strings"

	"holdfast/internal/proc"
)

// maxUnitName is systemd's limit (systemd.unit(5)).
const maxUnitName = 255

// systemUnit returns the system unit of a process, or "" when there is none or
// /proc hides the process.
func systemUnit(pid int32) (string, error) {
	text, err := proc.Read(pid, "cgroup")
	if err != nil {
		return "", unlessHidden(err)
	}
	return unitOf(cgroupPath(string(text))), nil
}

// cgroupPath returns the path in the unified hierarchy from /proc/PID/cgroup
// (cgroups(7)), or "" when there is not exactly one. The named version 1
// hierarchy of old systemd is ignored: it let programs be moved between units.
func cgroupPath(text string) string {
	path := ""
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, "0::")
		if !found {
			continue
		}
		if path != "" {
			return ""
		}
		path = strings.TrimSuffix(rest, "\n")
	}
	return path
}

// unitOf returns the system unit that a cgroup path names: one or more slices,
// each nested in the one that its name says, then the unit. The rest belongs
// to the unit, which may own a delegated subtree: the system manager did not write the
// names in it. Paths below user.slice, with
// ".." (a process outside our cgroup namespace), or with a name that systemd
// would not write give "".
func unitOf(path string) string {
	rest, found := strings.CutPrefix(path, "/")
	if !found || strings.HasPrefix(rest, "user.slice/") || hasDots(rest) {
		return ""
	}
	parent := ""
	for {
		name, after, more := strings.Cut(rest, "/")
		slice, isSlice := strings.CutSuffix(name, ".slice")
		if !isSlice {
			if parent == "" || !unitName(name) {
				return ""
			}
			return name
		}
		if !more || !unitName(name) || !nests(parent, slice) {
			return ""
		}
		parent, rest = slice, after
	}
}

// hasDots reports whether a component of path is empty, "." or "..".
func hasDots(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." {
			return true
		}
	}
	return false
}

// nests reports whether a slice belongs right below its parent: a-b.slice in
// a.slice, and only names without a dash at the top (systemd.slice(5)).
func nests(parent, slice string) bool {
	if parent == "" {
		return slice != "" && !strings.Contains(slice, "-")
	}
	rest, found := strings.CutPrefix(slice, parent+"-")
	return found && rest != "" && !strings.Contains(rest, "-")
}

// unitName reports whether name is a slice, service or scope as systemd writes
// it in a cgroup path. Backslashes are part of escaped names and are compared as
// they stand. A leading underscore or dot marks a name that systemd had to
// escape because it looks like a controller's file; such units are not named.
func unitName(name string) bool {
	base, suffix := name, ""
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		base, suffix = name[:dot], name[dot:]
	}
	if base == "" || len(name) > maxUnitName || base[0] == '_' || base[0] == '.' {
		return false
	}
	if suffix != ".service" && suffix != ".scope" && suffix != ".slice" {
		return false
	}
	return strings.Trim(base, unitCharacters) == ""
}

// unitCharacters are those of unit names (systemd.unit(5)).
const unitCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@"

// IsUnit reports whether name can be an [Identity]'s Unit: the whole name of a
// service or scope.
func IsUnit(name string) bool { return unitName(name) && !strings.HasSuffix(name, ".slice") }
