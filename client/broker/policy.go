package broker

import (
	"reflect"
	"sync"
	"sync/atomic"

	"holdfast/internal/policy"
)

// rules holds the policy in force, and why a newer one is not.
type rules struct {
	atomic.Pointer[policy.Policy]

	mu     sync.Mutex
	failed error // of the last reload; nil when it succeeded
}

// reload puts the policy that load returns in force, and reports whether it differs
// from the one before. An error keeps the one before.
func (r *rules) reload(load func() (*policy.Policy, error)) (changed bool, err error) {
	loaded, err := load()
	r.mu.Lock()
	r.failed = err
	r.mu.Unlock()
	if err != nil {
		return false, err
	}
	return !reflect.DeepEqual(r.Swap(loaded), loaded), nil
}

// reloadError returns why the last reload failed.
func (r *rules) reloadError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
