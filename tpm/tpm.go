// Package tpm keeps keys in a TPM 2.0 and signs with them: the backend "tpm"
// of package keys.
//
// Start at [Open]. A signature takes one path: [TPM.Sign] finds the loaded key
// or loads it (load.go) under its parent (srk.go), lays the command out by hand
// (sign.go) and sends it over a link (link.go) that knows deadlines, retries
// and damaged replies. go-tpm marshals every other command.
//
// A key without a PIN stays loaded or is at a persistent handle; a key with a PIN also
// needs a session that [TPM.Unlock] made (pin.go).
// Behind a resource manager each loaded key has a descriptor of its own,
// because the resource manager swaps everything that a descriptor holds around
// each of its commands.
//
// The package does not verify signatures (the agent does, under the recorded
// public key), does not attest keys, and does not notice an interposer that was present
// when a key was made. Response codes are not authenticated: they choose error
// messages. The package never clears the TPM, and never evicts objects of others.
package tpm

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// Backend is the name of this backend in key records and on the wire.
const Backend = "tpm"

// Default is the device that an empty [Config.Device] means.
const Default = "tpm:/dev/tpmrm0"

// Config selects the TPM.
type Config struct {
	// Device is "tpm:PATH" for a character device behind the kernel's resource
	// manager or "swtpm:PATH" for the Unix socket of a software TPM of our own,
	// which has no resource manager. Empty means [Default] where that exists.
	Device string

	// OwnerAuth authorises the owner hierarchy where the machine has set an
	// authorisation value for it. It is never logged.
	OwnerAuth []byte

	// Dial, when set, opens connections instead of Device, whose text then only
	// names the device. It is for tests and benchmarks.
	Dial func(context.Context) (Conn, error)

	// ResourceManager describes Dial's connections: true when each has handles of
	// its own that end with it.
	ResourceManager bool
}

// A TPM is a backend on one TPM. It is safe for concurrent use; commands of
// concurrent calls wait for each other.
type TPM struct {
	config  Config
	dial    func(context.Context) (Conn, error)
	managed bool // behind a resource manager
	ours    bool // a software TPM whose power we own

	owner chan struct{} // holds one token while a caller owns the fields below

	shared   *link                   // without a resource manager the only link
	dirty    bool                    // a reply was lost: handles that we do not know may be taken
	held     map[tpm2.TPMHandle]bool // without a resource manager: every handle that is ours
	loaded   map[string]*entry       // by the material's device member
	reserved map[tpm2.TPMHandle]bool // persistent handles promised to keys that are not there yet
	proven   map[string]bool         // by the material's device member: whether a counted key has signed or was refused
	clock    uint64                  // counts uses of entries
	probed   time.Time               // when the device, known to be wedged, was last asked whether it answers
	can      []keys.Capability       // the kinds of key that the device makes, once asked
	maker    string                  // manufacturer and firmware, once asked

	mu       sync.Mutex // guards the fields below; held only briefly
	health   health
	unlocked map[string]*session // by the material's device member
	expired  []*session          // to be flushed by the next owner
	closed   bool
}

var _ keys.Backend = (*TPM)(nil)

// Open returns the backend for c. It sends nothing to the device: the first
// command is sent by the first call that needs one.
func Open(c Config) (*TPM, error) {
	t := &TPM{
		config: c, owner: make(chan struct{}, 1),
		loaded: map[string]*entry{}, held: map[tpm2.TPMHandle]bool{}, reserved: map[tpm2.TPMHandle]bool{},
		proven: map[string]bool{}, unlocked: map[string]*session{},
		health: health{state: keys.StateReady, since: time.Now()},
	}
	if c.Dial != nil {
		t.dial, t.managed, t.ours = c.Dial, c.ResourceManager, strings.HasPrefix(c.Device, "swtpm:")
		return t, nil
	}
	return t, t.choose()
}

// choose turns the configured device into a way to open it.
func (t *TPM) choose() error {
	if t.config.Device == "" {
		t.config.Device = Default
		if _, err := os.Stat(strings.TrimPrefix(Default, "tpm:")); missingDevice(err) {
			return &fault.Error{Kind: fault.DeviceAbsent, Message: "this machine shows no TPM (/dev/tpmrm0)", Hint: hintOpen, Err: err}
		}
	}
	kind, path, _ := strings.Cut(t.config.Device, ":")
	switch {
	case path == "":
	case kind == "tpm":
		t.managed = true
		t.dial = func(context.Context) (Conn, error) { return openDevice(path) }
		return nil
	case kind == "swtpm":
		t.ours = true
		t.dial = func(ctx context.Context) (Conn, error) { return dialSocket(ctx, path) }
		return nil
	}
	return &fault.Error{Kind: fault.BadRequest, Message: "device " + t.config.Device + " is not known",
		Hint: "tpm:/dev/tpmrm0, or swtpm:PATH for a software TPM"}
}

// Name returns "tpm".
func (t *TPM) Name() string { return Backend }
