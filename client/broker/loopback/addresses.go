package loopback

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"sync"

	"holdfast/client/profile"
	"holdfast/internal/atomicfile"
	"holdfast/internal/varlink"
)

// addressesFile has the profiles' own addresses. An older broker does not read it, and
// serves everything on the shared address.
const addressesFile = "addresses.json"

// Own is where the proxy serves one profile alone: clients keep caches by host and
// port, and some send no server name.
type Own struct {
	Address netip.Addr // in 127.64.0.0/10
	PEM     string     // the certificate for it, for kubeconfigs
}

// Addresses holds the profiles' own addresses and their certificates, all with the key of
// the proxy's identity. Its methods are safe for concurrent use.
type Addresses struct {
	dir      string
	identity *Identity

	mu       sync.Mutex
	profiles map[string]record
	byIP     map[netip.Addr]*served
}

// record is what the file has for a profile.
type record struct {
	Address     netip.Addr `json:"address"`
	Certificate string     `json:"certificate"`
}

type served struct {
	profile     string
	certificate tls.Certificate
}

// OpenAddresses reads the addresses that were given out before. They stay the profiles'
// for good, also while a profile is not there: kubeconfigs name them.
func OpenAddresses(dir string, identity *Identity) (*Addresses, error) {
	a := &Addresses{dir: dir, identity: identity, profiles: map[string]record{}, byIP: map[netip.Addr]*served{}}
	path := filepath.Join(dir, addressesFile)
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return nil, err
	}
	if a.profiles, err = parseAddresses(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for name := range a.profiles {
		if err := a.serve(name); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// parseAddresses reads the file's text strictly.
func parseAddresses(data []byte) (map[string]record, error) {
	var kept struct {
		Profiles map[string]record `json:"profiles"`
	}
	if err := varlink.Unmarshal(data, &kept); err != nil || kept.Profiles == nil {
		return nil, errors.New("its content is not what this program writes")
	}
	taken := map[netip.Addr]bool{}
	for name, r := range kept.Profiles {
		if profile.CheckName(name) != nil || !ownAddresses.Contains(r.Address) || taken[r.Address] {
			return nil, fmt.Errorf("the address of profile %.80q is not one that this program gives", name)
		}
		taken[r.Address] = true
	}
	return kept.Profiles, nil
}

// serve makes the certificate of a profile ready. One that is for another key, because the
// proxy's was lost, is made anew. The caller holds mu, or is the only one.
func (a *Addresses) serve(name string) error {
	r := a.profiles[name]
	secret, err := a.identity.secret()
	if err != nil {
		return err
	}
	defer clear(secret)
	pair, err := assemble(r.Certificate, secret)
	if err != nil {
		if r.Certificate, err = a.identity.certify(name, r.Address); err != nil {
			return err
		}
		if pair, err = assemble(r.Certificate, secret); err != nil {
			return err
		}
		a.profiles[name] = r
		if err := a.save(); err != nil {
			return err
		}
	}
	a.byIP[r.Address] = &served{name, pair}
	return nil
}

// Of returns the address of a profile, and gives it one when it has none: derived from
// the profile's name, so that it is the same on each machine unless another profile has
// it here.
func (a *Addresses) Of(name string) (Own, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, known := a.profiles[name]
	if !known {
		taken := func(ip netip.Addr) bool { return a.byIP[ip] != nil }
		a.profiles[name] = record{Address: derive(name, taken)}
		if err := a.serve(name); err != nil {
			delete(a.profiles, name)
			return Own{}, err
		}
		r = a.profiles[name]
	}
	return Own{r.Address, r.Certificate}, nil
}

// At returns the profile at an address and its certificate, or "" where there is none.
func (a *Addresses) At(ip netip.Addr) (profile string, certificate *tls.Certificate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.byIP[ip.Unmap()]; s != nil {
		return s.profile, &s.certificate
	}
	return "", nil
}

func (a *Addresses) save() error {
	data, err := json.MarshalIndent(map[string]any{"profiles": a.profiles}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(a.dir, addressesFile), append(data, '\n'), nil)
}

// ownAddresses are far from those that other programs use: 127.0.0.1, 127.0.0.53
// (systemd-resolved) and 127.0.1.1 (Debian's host name).
var ownAddresses = netip.MustParsePrefix("127.64.0.0/10")

// derive returns an address that is not taken: 22 bits of the SHA-256 of the name, and of
// the name with a counter while that is taken. The last byte is neither 0 nor 255, which
// some programs take for a network.
func derive(name string, taken func(netip.Addr) bool) netip.Addr {
	for n := 0; ; n++ {
		text := name
		if n > 0 {
			text = fmt.Sprintf("%s %d", name, n)
		}
		sum := sha256.Sum256([]byte(text))
		host := binary.BigEndian.Uint32(sum[:4]) & (1<<22 - 1)
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 127<<24|64<<16|host)
		if ip := netip.AddrFrom4(b); b[3] != 0 && b[3] != 255 && !taken(ip) {
			return ip
		}
	}
}
