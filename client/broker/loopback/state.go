package loopback

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdfast/internal/atomicfile"
	"holdfast/internal/guard"
	"holdfast/internal/varlink"
)

// Where a key is kept, as the file has it.
const (
	keptSealed    = "sealed"
	keptInKeyring = "keyring"
	keptInFile    = "file"
)

// state is loopback.json.
type state struct {
	Address     string     `json:"address,omitempty"`     // 127.0.0.1:PORT, once one was chosen
	Certificate string     `json:"certificate,omitempty"` // PEM
	Key         string     `json:"key,omitempty"`         // sealed, keyring or file
	Replaced    *time.Time `json:"replaced,omitempty"`    // when the key before it was found to be lost
}

// maxState is far above what a file here holds, also with the certificates of a thousand
// profiles.
const maxState = 1 << 20

// load reads the file, which may be missing. A file that cannot be parsed is an error
// and stays: kubeconfigs pin the certificate in it.
func load(dir string) (state, error) {
	if err := guard.CheckPrivate(dir); err != nil {
		return state{}, err
	}
	path := filepath.Join(dir, stateFile)
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	kept, err := parse(data)
	if err != nil {
		return state{}, fmt.Errorf("%s: %w", path, err)
	}
	return kept, nil
}

// parse reads the file's text strictly.
func parse(data []byte) (state, error) {
	var kept state
	if err := varlink.Unmarshal(data, &kept); err != nil {
		return state{}, errors.New("its content is not what this program writes")
	}
	if (kept.Certificate == "") != (kept.Key == "") || !slices.Contains([]string{"", keptSealed, keptInKeyring, keptInFile}, kept.Key) {
		return state{}, errors.New("it does not say where the key is")
	}
	if kept.Address != "" {
		if err := CheckAddress(kept.Address); err != nil {
			return state{}, err
		}
	}
	return kept, nil
}

// CheckAddress accepts an IPv4 address of the loopback interface, 127.x.x.x, and a
// port, which may be 0.
func CheckAddress(address string) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !a.Addr().Is4() || !a.Addr().IsLoopback() {
		return fmt.Errorf("%.80q is not 127.0.0.1:PORT", address)
	}
	return nil
}

// Address returns the address that is kept in the state directory, or "".
func Address(dir string) (string, error) {
	kept, err := load(dir)
	return kept.Address, err
}

// SetAddress stores another address.
func SetAddress(dir, address string) error {
	kept, err := load(dir)
	if err != nil || kept.Address == address {
		return err
	}
	kept.Address = address
	return save(dir, kept)
}

func save(dir string, kept state) error {
	data, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, stateFile), append(data, '\n'), nil)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := guard.CheckOpen(f); err != nil {
		return nil, err
	}
	if info.Size() > maxState {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, maxState)
	}
	data := make([]byte, info.Size())
	n, err := f.ReadAt(data, 0)
	if int64(n) != info.Size() {
		return nil, err
	}
	return data, nil
}

// readKey reads the scalar from a file that no other user can read.
func readKey(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o: others can read it", path, info.Mode().Perm())
	}
	return readFile(path)
}

// removeKey removes the key's file. It may be gone already.
func removeKey(dir string) error {
	err := atomicfile.Remove(filepath.Join(dir, keyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
