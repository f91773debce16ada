package daemon

import (
	"fmt"

	"holdfast/internal/guard"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

// LoadPolicy reads the policy file at path with parse. It rejects a file that
// another user could have written, and a policy that this kernel cannot enforce.
// Without a path it returns the built-in policy.
func LoadPolicy(path string, parse func(path string) (*policy.Policy, error), builtIn *policy.Policy) (*policy.Policy, error) {
	if path == "" {
		return builtIn, nil
	}
	if err := guard.CheckFile(path); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	p, err := parse(path)
	if err != nil {
		return nil, err
	}
	exact, err := peer.HasPeerPidfd()
	if err != nil {
		return nil, err
	}
	if err := p.Enforceable(exact); err != nil {
		return nil, err
	}
	return p, nil
}
