package profile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"holdfast/internal/atomicfile"
	"holdfast/internal/guard"

	"go.yaml.in/yaml/v3"
)

// extension ends the names of profiles' files.
const extension = ".yaml"

const systemDirectory = "/etc/holdfast/profiles"

// Directory is where profiles are: ${XDG_CONFIG_HOME:-~/.config}/holdfast/profiles
// of a user, /etc/holdfast/profiles of the machine. It is empty when neither
// XDG_CONFIG_HOME nor HOME is an absolute path.
func Directory(system bool) string {
	if system {
		return systemDirectory
	}
	base := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) { // the specification says to ignore it then
		home := os.Getenv("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		base = filepath.Join(home, ".config")
	}
	return filepath.Join(base, "holdfast", "profiles")
}

// errNoDirectory is the error for an empty directory name, see [Directory].
var errNoDirectory = errors.New("profiles: neither XDG_CONFIG_HOME nor HOME says where they are")

// Load reads every profile in a directory. A missing directory has none. It returns the
// faults of invalid profiles by name: each line is "file:line: fault", or says that the
// file or directory is not safe because a user other than root and this one could have
// written it. It ignores files
// that do not end in .yaml or start with a dot. A port that two profiles have is a
// fault of both.
func Load(dir string) (profiles map[string]*Profile, faults map[string]error, err error) {
	if dir == "" {
		return nil, nil, errNoDirectory
	}
	profiles, faults = map[string]*Profile{}, map[string]error{}
	if err := guard.CheckDirectory(dir); errors.Is(err, fs.ErrNotExist) {
		return profiles, faults, nil
	} else if err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), extension)
		if !ok || strings.HasPrefix(name, ".") {
			continue
		}
		if p, err := load(filepath.Join(dir, e.Name()), name); err != nil {
			faults[name] = err
		} else {
			profiles[name] = p
		}
	}
	checkPorts(profiles, faults)
	return profiles, faults, nil
}

// checkPorts drops the profiles that share a port: the profile that the broker serves
// there must not depend on the order of file names.
func checkPorts(profiles map[string]*Profile, faults map[string]error) {
	for name, p := range profiles {
		for other, q := range profiles {
			if name != other && p.Proxy.Port != 0 && p.Proxy.Port == q.Proxy.Port {
				faults[name] = fmt.Errorf("%s%s:1: proxy.port: profile %s has port %d too", name, extension, other, p.Proxy.Port)
			}
		}
	}
	for name := range faults {
		delete(profiles, name)
	}
}

// load opens without waiting, so that it rejects a named pipe instead of waiting for
// a writer.
func load(path, name string) (*Profile, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := guard.CheckOpen(f); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, err
	}
	return parse(path, name, data)
}

// Write stores a profile in NAME.yaml, whole or not at all; it makes a
// missing directory. It does not write a profile that [Profile.Check] rejects. Only
// this user can read the file (0600). In a directory of root's, every user that can read
// the directory can read the file: the machine's broker is not root.
func Write(dir string, p *Profile) error {
	if dir == "" {
		return errNoDirectory
	}
	if err := p.Check(); err != nil {
		return fmt.Errorf("profile %.80s: %w", p.Name, err)
	}
	data, err := marshal(p)
	if err != nil {
		return fmt.Errorf("profile %s: %w", p.Name, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := guard.CheckDirectory(dir); err != nil {
		return err
	}
	share := func(f *os.File) error { return shareAs(f, dir) }
	if err := atomicfile.Write(filepath.Join(dir, p.Name+extension), data, share); err != nil {
		return fmt.Errorf("profile %s: %w", p.Name, err)
	}
	return nil
}

// marshal returns a profile's file, which it has parsed: a file that Parse rejects
// must not be in the broker's directory.
func marshal(p *Profile) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# Written by holdfast; a profile of holdfast-broker.\n")
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	stored := *p
	if len(stored.Modes) == 0 {
		stored.Modes = []string{ModeProxy}
	}
	if err := errors.Join(encoder.Encode(&stored), encoder.Close()); err != nil {
		return nil, err
	}
	if _, err := Parse(p.Name, out.Bytes()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// shareAs makes a file of root's readable by every user that can read its directory.
func shareAs(f *os.File, dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	if owner.Uid != 0 || os.Geteuid() != 0 || info.Mode().Perm()&0o044 == 0 {
		return nil
	}
	return errors.Join(f.Chown(-1, int(owner.Gid)), f.Chmod(0o600|info.Mode().Perm()&0o044))
}

// Remove removes a profile. For a missing one the error is [fs.ErrNotExist].
func Remove(dir, name string) error {
	if dir == "" {
		return errNoDirectory
	}
	if err := CheckName(name); err != nil {
		return err
	}
	return atomicfile.Remove(filepath.Join(dir, name+extension))
}
