package piv

import "time"

// Limits lets tests be impatient: with a hanging card, a caller who leaves, a
// child that keeps failing.
func (c *Config) Limits(operation, identify, grace time.Duration) {
	c.limits.operation, c.limits.identify, c.limits.grace = operation, identify, grace
}

// Finger sets how long a card may wait for a touch after its caller has left.
func (c *Config) Finger(d time.Duration) { c.limits.finger = d }

// Workers returns the process ids of the children that hold cards, and of the one
// that watches the readers.
func (p *PIV) Workers() (pids []int) {
	keepers := []*keeper{p.scanner.child}
	for _, w := range p.scanner.workers(0) {
		keepers = append(keepers, w.keeper)
	}
	for _, k := range keepers {
		k.mu.Lock()
		if k.now != nil && !k.now.dead() {
			pids = append(pids, k.now.cmd.Process.Pid)
		}
		k.mu.Unlock()
	}
	return pids
}
